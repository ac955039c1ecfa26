/* gate.c - see gate.h: counts what passes the doors, and says which call is to fail. */
#include "base/gate.h"

#ifdef TY_TORTURE
static int64_t passed, fails_at;
static int fails_on;

bool gate_fails(void)
{
  const int64_t n = __atomic_add_fetch(&passed, 1, __ATOMIC_SEQ_CST);
  const int64_t at = __atomic_load_n(&fails_at, __ATOMIC_SEQ_CST);
  return at && (n == at || (n > at && __atomic_load_n(&fails_on, __ATOMIC_SEQ_CST)));
}

int64_t ty_torture(int64_t at, int lasting)
{
  __atomic_store_n(&fails_at, 0, __ATOMIC_SEQ_CST);
  const int64_t n = __atomic_exchange_n(&passed, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n(&fails_on, lasting, __ATOMIC_SEQ_CST);
  __atomic_store_n(&fails_at, at, __ATOMIC_SEQ_CST);
  return n;
}
#else
typedef int gate_unused;                               /* C wants a declaration */
#endif
