/* signature.c - what an operator reads and writes under given parameters: its ports, and what its
** gradient operator reads.
*/
#include "op/registry.h"

const char *op_reads(const struct op *op, const void *param)
{
  if (op->formula) return formula_reads_of(op, param);
  return op->grad_of ? op->grad_of(param) : op->grad;
}

/* -- ports ------------------------------------------------------------------------------------- */

static char *port_name(struct arena *a, const char *s, size_t n, int k)
{
  char *name = arena_new(a, n + 12);
  if (!name) return NULL;
  memcpy(name, s, n);
  if (k >= 0) snprintf(name + n, 12, "%d", k);
  return name;
}

static int times(const struct op *op, const void *param, const char *key, size_t n)
{
  char name[64];
  bool found;
  snprintf(name, sizeof name, "%.*s", (int)n, key);
  double v = op_number(op, param, name, &found);
  return found && v >= 0 && v < 1e6 ? (int)v : 0;
}

static int count_ports(const char *s)
{
  int n = 0;
  while (*s) {
    s += strspn(s, " ");
    n += *s != 0;
    s += strcspn(s, " ");
  }
  return n;
}

/* Adds the ports of one token: "name", "name!", "name*param", "[name]", "{name}". */
static bool add_token(const struct op *op, const void *param, const char *s, size_t n, int fill_up,
    struct arena *a, struct port *out, int *at, int cap)
{
  struct port p = { .hidden = *s == '[', .secret = *s == '{' };
  if (p.hidden || p.secret) s++, n -= 2;
  const char *star = memchr(s, '*', n);
  size_t len = star ? (size_t)(star - s) : n;
  if (s[len - 1] == '!') p.mutated = true, len--;
  int k = !star      ? 1
      : fill_up >= 0 ? fill_up
                     : times(op, param, star + 1, (size_t)(s + n - star) - 1);
  for (int i = 0; i < k && *at < cap; i++) {
    p.name = port_name(a, s, len, star ? i : -1);
    if (!p.name) return false;
    out[(*at)++] = p;
  }
  return true;
}

static int list_ports(const struct op *op, const void *param, const char *text, int given_n,
    struct arena *a, struct port **out, int *n)
{
  int tokens = count_ports(text), cap = tokens + 4;
  const char *star = strchr(text, '*');
  if (star) {
    size_t len = strcspn(star + 1, " ]}");
    cap += given_n > 0 ? given_n : times(op, param, star + 1, len);
  }
  *out = arena_new(a, sizeof(struct port) * (size_t)cap);
  NEED(*out, TY_EMEMORY, "out of memory");
  *n = 0;
  for (const char *s = text + strspn(text, " "); *s; s += strspn(s, " ")) {
    size_t len = strcspn(s, " ");
    int fill_up = star && given_n >= 0 ? MAX(given_n - (tokens - 1), 0) : -1;
    NEED(add_token(op, param, s, len, fill_up, a, *out, n, cap), TY_EMEMORY, "out of memory");
    s += len;
  }
  return TY_OK;
}

/* "arg*num_args" counts its inputs: n of them have been given. Control flow, which has no
** kernel, counts its bodies too. */
static int check_count(const struct op *op, const void *param, const char *in, int n)
{
  const char *star = strchr(in, '*');
  char key[64];
  bool found;
  if (n < 0 || !star || !op->cpu) return TY_OK;
  snprintf(key, sizeof key, "%.*s", (int)strcspn(star + 1, " ]}"), star + 1);
  double count = op_number(op, param, key, &found);
  if (!found || count == n) return TY_OK;
  int code = fail(
      TY_EVALUE, "%s: parameter %s is %.0f, but %d inputs are given", op->name, key, count, n);
  fail_argument(key, NULL, NULL);
  return code;
}

int op_ports(const struct op *op, const void *param, int n, struct arena *a, struct ports *out)
{
  const char *in = op->in_of ? op->in_of(param) : op->in,
             *outs = op->out_of ? op->out_of(param) : op->out;
  TRY(check_count(op, param, in ? in : "", n));
  TRY(list_ports(op, param, in ? in : "", n, a, &out->in, &out->nin));
  TRY(list_ports(op, param, outs ? outs : "output", -1, a, &out->out, &out->nout));
  out->nvisible = out->nreal = 0;
  for (int i = 0; i < out->nout; i++) {
    out->nreal += !out->out[i].secret;
    out->nvisible += !out->out[i].secret && !out->out[i].hidden;
  }
  return TY_OK;
}

/* The reference declares no input names for most operators of one input; monitors then number
** them. */
bool monitor_input_named(const struct op *op)
{
  static const char *const named[] = { "LRN", "Dropout", "softmax", "log_softmax", "softmin",
    "MakeLoss", "BlockGrad" };
  for (int i = 0; i < COUNT(named); i++)
    if (!strcmp(op->name, named[i])) return true;
  return op->in && strcmp(op->in, "data");
}

bool op_variadic(const struct op *op, char *key, size_t size)
{
  const char *star = op->in ? strchr(op->in, '*') : NULL;
  if (!star) return false;
  snprintf(key, size, "%.*s", (int)strcspn(star + 1, " "), star + 1);
  return true;
}

/* Attributes with the count of a variadic operator filled in. `more` has room for nattr + 1
** entries and `number` for a count. */
const ty_attr *op_counted(
    const struct op *op, const ty_attr *attr, int *nattr, int nin, ty_attr *more, char number[16])
{
  static __thread char key[64];
  if (nin < 0 || !op_variadic(op, key, sizeof key) || !*key || attr_given(attr, *nattr, key) ||
      !op_has_param(op, key))
    return attr;
  if (*nattr) memcpy(more, attr, sizeof *attr * (size_t)*nattr);
  snprintf(number, 16, "%d", nin);
  more[(*nattr)++] = (ty_attr){ key, number };
  return more;
}
