/* build.c - builds and seals pointwise programs (see ir.h).
**
** Building: a term is made only if no equal one exists, and folded if its arguments are numbers.
** Sealing: terms that no store needs are dropped; a product used only by a sum is joined to it;
** terms that do not depend on the element come first; slots of temporaries are reused after their
** last reader. A stored term keeps its slot, which may be the operand's memory itself (`direct`) if
** no operand is read later: a stored operand may also be a loaded one.
*/
#include <ctype.h>
#include "base/cast.h"
#include "pointwise/ir.h"

const struct pw_opcode pw_opcode[PW_OPCODES] = {
#define BOTH(id, name, args, cost, floats, ints) { name, args, cost, false, #floats, #ints },
#define FULL(id, name, args, cost, expression) { name, args, cost, true, #expression, #expression },
  PW_BOTH(BOTH) PW_REAL(FULL)
#undef BOTH
#undef FULL
};

int pw_opcode_find(const char *name, size_t n)
{
  for (int i = 0; i < PW_OPCODES; i++) {
    const char *word = pw_opcode[i].name;
    if (*word == *name && !strncmp(word, name, n) && !word[n]) return i;
  }
  return -1;
}

/* -- building ---------------------------------------------------------------------------------- */

struct pw_program *pw_new(int dtype)
{
  struct pw_program *t = NEW(struct pw_program);
  if (!t) return NULL;
  t->kind = dtype == TY_F64 ? KIND_F64
      : dtype == TY_I32     ? KIND_I32
      : dtype == TY_I64     ? KIND_I64
                            : KIND_F32;
  t->dtype = (const int[]){ TY_F32, TY_F64, TY_I32, TY_I64 }[t->kind];
  return t;
}

void pw_free(struct pw_program *t)
{
  if (!t) return;
  pw_forget(t);
  mem_free(t->term);
  mem_free(t->code);
  mem_free(t->get);
  mem_free(t);
}

static bool same_number(double a, double b) { return !memcmp(&a, &b, sizeof a); }

static bool same_term(const struct pw_term *a, const struct pw_term *b)
{
  return a->op == b->op && a->dtype == b->dtype && a->operand == b->operand &&
      a->uniform == b->uniform && !memcmp(a->arg, b->arg, sizeof a->arg) &&
      same_number(a->number, b->number);
}

static int put_term(struct pw_program *t, struct pw_term x)
{
  for (int i = t->n - 1; i >= 0; i--)
    if (same_term(&t->term[i], &x)) return i;
  if (!GROW(t->term, t->n, t->cap)) {
    t->error = TY_EMEMORY;
    return 0;
  }
  t->term[t->n] = x;
  return t->n++;
}

int pw_load(struct pw_program *t, int operand)
{
  for (int i = 0; i < t->n; i++)
    if (t->term[i].op == PW_LOAD && t->term[i].operand == operand) return i;
  return put_term(t, (struct pw_term){ .op = PW_LOAD, .arg = { -1, -1, -1 }, .operand = operand });
}

void pw_uniform(struct pw_program *t, int reg, double known)
{
  if (reg < 0 || reg >= t->n) return;
  t->term[reg].uniform = true;
  t->term[reg].number = known;
}

/* Returns a number converted to the program's dtype: integers are truncated; out of range is the
** smallest integer. */
static double read_as(const struct pw_program *t, double v)
{
  if (t->kind < KIND_I32) return v;
  double limit = t->kind == KIND_I32 ? 0x1p31 : 0x1p63;
  return v >= -limit && v < limit ? trunc(v) : -limit;
}

int pw_number(struct pw_program *t, double value)
{
  struct pw_term x = { .op = PW_NUMBER,
    .arg = { -1, -1, -1 },
    .number = read_as(t, value),
    .operand = -1,
    .uniform = true };
  return put_term(t, x);
}

static bool is_number(const struct pw_program *t, int i)
{
  return i >= 0 && t->term[i].op == PW_NUMBER;
}
static bool number_is(const struct pw_program *t, int i, double v)
{
  return is_number(t, i) && t->term[i].number == v;
}

/* Returns the value of an opcode over numbers, in float64 or int64. */
static double evaluate_op(const struct pw_program *t, int op, double a, double b, double c)
{
  const struct pw_table *k = pw_table();
  if (t->kind < KIND_I32) {
    double d;
    k->op[KIND_F64][op](&d, &a, &b, &c, 1);
    return d;
  }
  int64_t d, x[3] = { 0 };
  const double v[3] = { a, b, c };
  for (int i = 0; i < 3; i++) x[i] = i64_of_f64(v[i]);
  if (pw_opcode[op].real) {
    const double y[2] = { (double)x[0], (double)x[1] };
    double of_y;
    k->op[KIND_F64][op](&of_y, &y[0], &y[1], &y[0], 1);
    d = i64_of_f64(of_y);
  }
  else
    k->op[KIND_I64][op](&d, &x[0], &x[1], &x[2], 1);
  return t->kind == KIND_I32 ? (double)(int32_t)(uint32_t)(uint64_t)d : (double)d;
}

/* Compares a parameter, whose sign is known, with zero. */
static int compare_sign(struct pw_program *t, int op, int a, int b)
{
  if (op < PW_GT || op > PW_NE) return -1;
  bool left = t->term[a].op == PW_LOAD && t->term[a].uniform && number_is(t, b, 0);
  bool right = t->term[b].op == PW_LOAD && t->term[b].uniform && number_is(t, a, 0);
  if (!left && !right) return -1;
  return pw_number(t, evaluate_op(t, op, t->term[a].number, t->term[b].number, 0));
}

static int fold_constants(struct pw_program *t, int op, int a, int b, int c)
{
  int n = pw_opcode[op].args;
  if (is_number(t, a) && (n < 2 || is_number(t, b)) && (n < 3 || is_number(t, c))) {
    double second = n > 1 ? t->term[b].number : 0, third = n > 2 ? t->term[c].number : 0;
    return pw_number(t, evaluate_op(t, op, t->term[a].number, second, third));
  }
  switch (op) {
  case PW_WHERE: return b == c ? b : is_number(t, a) ? (t->term[a].number != 0 ? b : c) : -1;
  case PW_MUL: return number_is(t, a, 1) ? b : number_is(t, b, 1) ? a : -1;
  case PW_DIV: return number_is(t, b, 1) ? a : -1;
  case PW_POW:
    return number_is(t, b, 1) ? a : number_is(t, b, 2) ? pw_term_op(t, PW_MUL, a, a, -1) : -1;
  case PW_SUB: return number_is(t, b, 0) && !signbit(t->term[b].number) ? a : -1;
  case PW_NEG: return t->term[a].op == PW_NEG ? t->term[a].arg[0] : -1;
  case PW_AND: return number_is(t, a, 0) || number_is(t, b, 0) ? pw_number(t, 0) : -1;
  default: return n == 2 ? compare_sign(t, op, a, b) : -1;
  }
}

int pw_term_op(struct pw_program *t, int op, int a, int b, int c)
{
  if (t->error) return 0;
  int n = pw_opcode[op].args, known = fold_constants(t, op, a, b, c);
  if (known >= 0) return known;
  struct pw_term x = {
    .op = (uint8_t)op, .arg = { a, n > 1 ? b : -1, n > 2 ? c : -1 }, .operand = -1, .uniform = true
  };
  for (int k = 0; k < n; k++) x.uniform &= t->term[x.arg[k]].uniform;
  return put_term(t, x);
}

int pw_cast(struct pw_program *t, int reg, int dtype)
{
  if (t->error || dtype == t->dtype || (t->kind == KIND_F32 && dtype == TY_F64)) return reg;
  struct pw_term x = {
    .op = PW_CAST, .dtype = (uint8_t)dtype, .arg = { reg, -1, -1 }, .operand = -1
  };
  x.uniform = t->term[reg].uniform;
  return put_term(t, x);
}

void pw_store(struct pw_program *t, int operand, int reg)
{
  if (t->nput == PW_ARGS)
    t->error = TY_EUNSUPPORTED;
  else
    t->put[t->nput++] = (struct pw_put){ .operand = operand, .term = reg };
}

int pw_dtype(const ty_desc *d, int n)
{
  bool real = false, wide = false, single = false;
  for (int i = 0; i < n; i++) {
    real |= d[i].dtype == TY_F64;
    single |= dtype_float(d[i].dtype);
    wide |= d[i].dtype == TY_I64;
  }
  return real ? TY_F64 : single ? TY_F32 : wide ? TY_I64 : TY_I32;
}

/* -- sealing ----------------------------------------------------------------------------------- */

static bool no_code(const struct pw_term *x) { return x->op == PW_LOAD || x->op == PW_NUMBER; }

static void count_uses(struct pw_program *t)
{
  for (int i = 0; i < t->n; i++) t->term[i].live = false, t->term[i].uses = 0;
  for (int s = 0; s < t->nput; s++)
    t->term[t->put[s].term].live = true, t->term[t->put[s].term].uses++;
  for (int i = t->n - 1; i >= 0; i--)
    for (int k = 0; t->term[i].live && k < 3 && t->term[i].arg[k] >= 0; k++) {
      t->term[t->term[i].arg[k]].live = true;
      t->term[t->term[i].arg[k]].uses++;
    }
}

static bool is_only_product(const struct pw_program *t, int i)
{
  return t->term[i].op == PW_MUL && t->term[i].uses == 1 && !t->term[i].uniform;
}

/* Joins a * b + c, a * b - c, c - a * b: one pass instead of two, with the same bits. */
static void join_products(struct pw_program *t)
{
  for (int i = 0; i < t->n; i++) {
    struct pw_term *x = &t->term[i];
    if (!x->live || (x->op != PW_ADD && x->op != PW_SUB)) continue;
    int first = is_only_product(t, x->arg[0]) ? 0 : is_only_product(t, x->arg[1]) ? 1 : -1;
    if (first < 0) continue;
    struct pw_term *p = &t->term[x->arg[first]];
    int other = x->arg[1 - first];
    x->op = x->op == PW_ADD ? PW_MADD : first == 0 ? PW_MSUB : PW_NMADD;
    x->arg[0] = p->arg[0];
    x->arg[1] = p->arg[1];
    x->arg[2] = other;
    p->live = false;
  }
}

static bool is_bound(const struct pw_program *t, int i, int op)
{
  const struct pw_term *x = &t->term[i];
  return x->op == op && !x->uniform && is_number(t, x->arg[1]) && !isnan(t->term[x->arg[1]].number);
}

/* Joins min and max with numbers, in either order, to one clamp with the same bits, if the lower
** bound is not above the upper. */
static void join_bounds(struct pw_program *t)
{
  for (int i = 0; i < t->n; i++) {
    struct pw_term *x = &t->term[i];
    const int within = x->op == PW_MAX ? PW_MIN : PW_MAX;
    if (!x->live || (x->op != PW_MAX && x->op != PW_MIN) || !is_bound(t, i, x->op)) continue;
    struct pw_term *p = &t->term[x->arg[0]];
    if (p->uses != 1 || !is_bound(t, x->arg[0], within)) continue;
    const int least = x->op == PW_MAX ? x->arg[1] : p->arg[1],
              most = x->op == PW_MAX ? p->arg[1] : x->arg[1];
    if (t->term[least].number > t->term[most].number) continue;
    x->op = PW_CLAMP;
    x->arg[0] = p->arg[0];
    x->arg[1] = least;
    x->arg[2] = most;
    p->live = false;
  }
}

/* Returns which factor of product x is a * b + c clamped to 0 .. 1, where a is the other factor and
** b and c are numbers; -1: none. */
static int find_gate(const struct pw_program *t, const struct pw_term *x, int *by)
{
  for (int k = 0; k < 2; k++) {
    const struct pw_term *q = &t->term[x->arg[k]];
    if (q->op != PW_CLAMP || q->uses != 1 || q->uniform) continue;
    const struct pw_term *p = &t->term[q->arg[0]];
    if (!same_number(t->term[q->arg[1]].number, 0) || !number_is(t, q->arg[2], 1) ||
        p->op != PW_MADD || p->uses != 1 || !is_number(t, p->arg[2]))
      continue;
    const int own = p->arg[0] == x->arg[1 - k] ? 0 : 1;
    *by = p->arg[1 - own];
    if (p->arg[own] == x->arg[1 - k] && is_number(t, *by)) return k;
  }
  return -1;
}

/* Joins a times (a * b + c clamped to 0 .. 1), as in hard_swish, to one pass instead of three, with
** the same bits. */
static void join_gates(struct pw_program *t)
{
  for (int i = 0; i < t->n; i++) {
    struct pw_term *x = &t->term[i];
    int by;
    if (!x->live || x->op != PW_MUL || x->uniform) continue;
    const int gate = find_gate(t, x, &by);
    if (gate < 0) continue;
    struct pw_term *q = &t->term[x->arg[gate]], *p = &t->term[q->arg[0]];
    x->op = PW_GATE;
    x->arg[0] = x->arg[1 - gate];
    x->arg[1] = by;
    x->arg[2] = p->arg[2];
    q->live = p->live = false;
  }
}

/* slot, last: per term, its slot and the index of its last reader */
struct layout { struct pw_program *t; int *slot, *last; int free[SLOTS], nfree; };

static int new_slot(struct layout *l)
{
  if (l->nfree) return l->free[--l->nfree];
  return l->t->nslot < SLOTS ? l->t->nslot++ : -1;
}

static void find_last(struct layout *l)
{
  struct pw_program *t = l->t;
  for (int i = 0; i < t->n; i++) l->slot[i] = l->last[i] = -1;
  for (int i = 0; i < t->n; i++)
    for (int k = 0; t->term[i].live && k < 3 && t->term[i].arg[k] >= 0; k++)
      l->last[t->term[i].arg[k]] = i;
}

/* Assigns permanent slots to operands, numbers, stored and uniform terms. */
static int give_fixed(struct layout *l)
{
  struct pw_program *t = l->t;
  for (int i = 0; i < t->n; i++) {
    const struct pw_term *x = &t->term[i];
    bool stored = false;
    for (int s = 0; s < t->nput; s++) stored |= t->put[s].term == i;
    if (!x->live || !(no_code(x) || x->uniform || stored)) continue;
    l->last[i] = -1; /* its slot is never reused */
    if ((l->slot[i] = new_slot(l)) < 0) return TY_EUNSUPPORTED;
    int operand = x->op == PW_LOAD ? x->operand : -1;
    bool copy = stored &&
        t->nput > 1; /* another store could overwrite the operand before it is read */
    if (no_code(x))
      t->get[t->nget++] = (struct pw_get){ operand, x->number, (uint8_t)l->slot[i], x->uniform,
        copy };
  }
  return TY_OK;
}

/* Returns the instruction of a term. Makes the uniform argument of a sum, difference or product the
** second one. */
static int with_fixed(const struct pw_program *t, const struct pw_term *x, int slot[3])
{
  static const uint8_t fixed[PW_OPCODES] = { [PW_ADD] = PW_ADD_FIXED,
    [PW_SUB] = PW_SUB_FIXED,
    [PW_MUL] = PW_MUL_FIXED,
    [PW_MADD] = PW_MADD_FIXED,
    [PW_MSUB] = PW_MSUB_FIXED,
    [PW_NMADD] = PW_NMADD_FIXED };
  if (x->op >= PW_OPCODES || x->uniform || t->kind > KIND_F64) return x->op;
  if (x->op == PW_GATE && t->term[x->arg[1]].uniform && t->term[x->arg[2]].uniform)
    return PW_GATE_FIXED;
  if (!fixed[x->op]) return x->op;
  if (t->term[x->arg[1]].uniform) return fixed[x->op];
  if (!t->term[x->arg[0]].uniform) return x->op;
  int first = slot[0];
  slot[0] = slot[1];
  slot[1] = first;
  return x->op == PW_SUB ? PW_FROM_FIXED : fixed[x->op];
}

static int emit_term(struct layout *l, int i)
{
  struct pw_program *t = l->t;
  const struct pw_term *x = &t->term[i];
  int s[3], n = 0;
  for (; n < 3 && x->arg[n] >= 0; n++) s[n] = l->slot[x->arg[n]];
  for (int k = n; k < 3; k++) s[k] = s[0]; /* loops may read all three */
  for (int k = 0; k < n; k++)
    if (l->last[x->arg[k]] == i) l->free[l->nfree++] = s[k], l->last[x->arg[k]] = -1;
  if (l->slot[i] < 0 && (l->slot[i] = new_slot(l)) < 0) return TY_EUNSUPPORTED;
  const int op = with_fixed(t, x, s);
  struct pw_ins c = { (uint8_t)op, x->dtype, (uint8_t)l->slot[i], (uint8_t)s[0], (uint8_t)s[1],
    (uint8_t)s[2] };
  t->code[t->ncode++] = c;
  if (!x->uniform)
    t->cost += x->op == PW_CAST ? 8 : pw_opcode[x->op].cost * (t->kind == KIND_F64 ? 2 : 1);
  return TY_OK;
}

static int emit_all(struct layout *l)
{
  struct pw_program *t = l->t;
  TRY(give_fixed(l));
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < t->n; i++)
      if (t->term[i].live && !no_code(&t->term[i]) && t->term[i].uniform == !pass)
        TRY(emit_term(l, i));
    if (!pass) t->nuniform = t->ncode;
  }
  return TY_OK;
}

/* Marks stores as direct if their term is computed after the last read of any operand. */
static void find_direct(struct layout *l)
{
  struct pw_program *t = l->t;
  int look = 0;
  for (int i = 0; i < t->n; i++)
    for (int k = 0; t->term[i].live && k < 3 && t->term[i].arg[k] >= 0; k++)
      if (t->term[t->term[i].arg[k]].op == PW_LOAD) look = i;
  for (int s = 0; s < t->nput; s++)
    if (t->term[t->put[s].term].op == PW_LOAD) look = t->n;
  for (int s = 0; s < t->nput; s++) {
    struct pw_put *p = &t->put[s];
    p->slot = (uint8_t)l->slot[p->term];
    p->direct = p->term >= look && !t->term[p->term].uniform && !no_code(&t->term[p->term]);
    for (int r = 0; r < s; r++)
      if (t->put[r].term == p->term) p->direct = false;
  }
}

static int too_long(void)
{
  return fail(TY_EUNSUPPORTED, "pointwise program: more than %d values at once", SLOTS);
}

int pw_seal(struct pw_program *t)
{
  if (t->error == TY_EUNSUPPORTED) return too_long();
  if (t->error) return fail(t->error, "out of memory: pointwise program");
  if (t->sealed) return TY_OK;
  count_uses(t);
  for (int i = 0; i < t->n; i++)
    NEED(!t->term[i].live || t->term[i].op != PW_LOAD || t->term[i].operand >= 0, TY_EVALUE,
        "pointwise program: a stored value depends on a variable that does not exist");
  join_products(t);
  join_bounds(t);
  join_gates(t);
  t->code = NEWS(struct pw_ins, t->n);
  t->get = NEWS(struct pw_get, t->n);
  int *slots = NEWS(int, 2 * t->n);
  struct layout l = { .t = t, .slot = slots, .last = slots ? slots + t->n : NULL };
  int code = t->code && t->get && slots ? TY_OK
                                       : fail(TY_EMEMORY, "out of memory: pointwise program");
  if (!code) {
    find_last(&l);
    if (emit_all(&l))
      code = too_long();
    else
      find_direct(&l);
  }
  mem_free(slots);
  t->cost += 2 * (t->nget + t->nput);
  t->sealed = !code;
  return code;
}


/* -- printing: "%2 = relu(%0 * %1 + 0.5)" ------------------------------------------------------ */

/* most characters: shared terms are written out, so length may grow exponentially */
enum { PRINTED = 2000 };

static void print_infix(const struct pw_program *t, const struct pw_term *x, struct text *out);
static void print_call(const struct pw_program *t, const struct pw_term *x, struct text *out);

static bool is_infix(const struct pw_term *x)
{
  return x->op != PW_CAST && pw_opcode[x->op].args == 2 &&
      !isalpha((unsigned char)*pw_opcode[x->op].name);
}

static void print_term(const struct pw_program *t, int i, struct text *out)
{
  const struct pw_term *x = &t->term[i];
  if (out->n > PRINTED)
    text_add(out, "...");
  else if (x->op == PW_LOAD)
    text_add(out, "%%%d", x->operand);
  else if (x->op == PW_NUMBER)
    text_add(out, "%.9g", x->number);
  else if (is_infix(x))
    print_infix(t, x, out);
  else
    print_call(t, x, out);
}

static void print_infix(const struct pw_program *t, const struct pw_term *x, struct text *out)
{
  text_add(out, "(");
  print_term(t, x->arg[0], out);
  text_add(out, " %s ", pw_opcode[x->op].name);
  print_term(t, x->arg[1], out);
  text_add(out, ")");
}

static void print_call(const struct pw_program *t, const struct pw_term *x, struct text *out)
{
  text_add(out, "%s(", x->op == PW_CAST ? dtype_name(x->dtype) : pw_opcode[x->op].name);
  for (int k = 0; k < 3 && x->arg[k] >= 0; k++) {
    if (k) text_add(out, ", ");
    print_term(t, x->arg[k], out);
  }
  text_add(out, ")");
}

int pw_print(const struct pw_program *t, struct text *out)
{
  for (int s = 0; s < t->nput; s++) {
    text_add(out, "%s%%%d = ", s ? "; " : "", t->put[s].operand);
    print_term(t, t->put[s].term, out);
  }
  return out->lost ? fail(TY_EMEMORY, "out of memory: text") : TY_OK;
}
