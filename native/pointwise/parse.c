/* parse.c - formulas: text to terms of a pointwise program.
**
**   text     = { letter "=" either ";" } either
**   either   = binary [ "?" either ":" either ]           both sides are computed
**   binary   = || && == != < <= > >= + - * /              by precedence, to the left; comparisons
**                                                       give 0 or 1
**   unary    = - + ! unary | atom
**   atom     = number | pi | inf | nan | letter | $parameter
**            | function "(" either { "," either } ")" | "(" either ")"
**
** Parsing stops at the first mistake; the failure has its column, from 1.
*/
#include <ctype.h>
#include "pointwise/ir.h"

enum {
  LETTERS = 26,                                       /* variables are letters */
  DEEPEST = 200,                                      /* most nested choices and unary operators */
  /* operand number of the unknown variable a; -3: b ... */
  MISSING = -2
};

struct parse {
  struct pw_program *t;
  struct pw_env *env;
  const char *text;                                   /* the formula */
  const char *s;                                      /* next character */
  const char *missing[LETTERS];                       /* first use of each unknown variable */
  int code;                                           /* of the first mistake */
  int depth;
};

static int parse_choice(struct parse *p);

/* Fails at a place of the formula, quoting n characters. Returns a term, to be ignored. */
static int fail_formula(struct parse *p, const char *at, const char *what, int n)
{
  if (p->code) return 0;
  const char *quote = n ? "'" : "";
  p->code = fail(TY_EVALUE, "formula '%s', column %d: %s%s%s%.*s%s", p->text,
      (int)(at - p->text) + 1, what, n ? " " : "", quote, n, at, quote);
  fail_argument("formula", NULL, p->text);
  p->s = at + strlen(at); /* ends parsing */
  return 0;
}

static void skip_blanks(struct parse *p) { while (isspace((unsigned char)*p->s)) p->s++; }

/* Returns whether c comes next, and skips it if so. */
static bool take_char(struct parse *p, char c)
{
  skip_blanks(p);
  if (*p->s != c) return false;
  p->s++;
  return true;
}

/* Skips c, or fails. */
static void expect_char(struct parse *p, char c)
{
  char what[16];
  if (take_char(p, c)) return;
  snprintf(what, sizeof what, "expected '%c'", c);
  fail_formula(p, p->s, what, 0);
}

/* Returns whether the n bytes at s are `word`. */
static bool is_word(const char *word, const char *s, size_t n)
{
  return *word == *s && !strncmp(word, s, n) && !word[n];
}

static int make_unary(struct parse *p, int op, int a)
{
  return p->code ? 0 : pw_term_op(p->t, op, a, -1, -1);
}

static int make_binary(struct parse *p, int op, int a, int b)
{
  return p->code ? 0 : pw_term_op(p->t, op, a, b, -1);
}

/* -- atoms ------------------------------------------------------------------------------------- */

/* functions composed of opcodes */
enum { SQUARE = 1000, ISINF, ISFINITE, ISREAL, XOR, CLIP };

/* Functions besides those of pw_opcode: other spellings, and composed functions. */
static const struct {
  const char *name;
  int op; /* PW_*, or one of the above */
  int args;
} other_functions[] = {
  { "psi", PW_DIGAMMA, 1 },
  { "arcsin", PW_ASIN, 1 },
  { "arccos", PW_ACOS, 1 },
  { "arctan", PW_ATAN, 1 },
  { "arcsinh", PW_ASINH, 1 },
  { "arccosh", PW_ACOSH, 1 },
  { "arctanh", PW_ATANH, 1 },
  { "fix", PW_TRUNC, 1 },
  { "lgamma", PW_GAMMALN, 1 },
  { "tgamma", PW_GAMMA, 1 },
  { "fabs", PW_ABS, 1 },
  { "select", PW_WHERE, 3 },
  { "square", SQUARE, 1 },
  { "isinf", ISINF, 1 },
  { "xor", XOR, 2 },
  { "clip", CLIP, 3 },
  { "isfinite", ISFINITE, 1 },
  { "isreal", ISREAL, 1 },
};

/* Makes the terms of a composed function. */
static int make_function(struct parse *p, int op, const int *a)
{
  if (p->code) return 0;
  int zero = pw_number(p->t, 0), one = pw_number(p->t, 1), inf = pw_number(p->t, INFINITY);
  switch (op) {
  case SQUARE: return make_binary(p, PW_MUL, a[0], a[0]);
  case ISINF:
    return p->t->kind >= KIND_I32 ? zero : make_binary(p, PW_EQ, make_unary(p, PW_ABS, a[0]), inf);
  case ISFINITE:
    return p->t->kind >= KIND_I32 ? one : make_binary(p, PW_GT, inf, make_unary(p, PW_ABS, a[0]));
  case ISREAL: return p->t->kind >= KIND_I32 ? zero : one;
  case XOR: return make_binary(p, PW_NE, make_unary(p, PW_NOT, a[0]), make_unary(p, PW_NOT, a[1]));
  default: /* CLIP */ return make_binary(p, PW_MAX, make_binary(p, PW_MIN, a[0], a[2]), a[1]);
  }
}

static int parse_call(struct parse *p, const char *name, size_t n)
{
  int a[3] = { 0 }, op = pw_opcode_find(name, n), args = op >= 0 ? pw_opcode[op].args : 0;
  for (int i = 0; i < COUNT(other_functions); i++)
    if (is_word(other_functions[i].name, name, n))
      op = other_functions[i].op, args = other_functions[i].args;
  if (op < 0) return fail_formula(p, name, "there is no function", (int)n);
  expect_char(p, '(');
  for (int k = 0; k < args && !p->code; k++) {
    a[k] = parse_choice(p);
    expect_char(p, k + 1 < args ? ',' : ')');
  }
  if (p->code) return 0;
  return op >= SQUARE ? make_function(p, op, a) : pw_term_op(p->t, op, a[0], a[1], a[2]);
}

/* Skips a word and returns its length. */
static size_t skip_word(struct parse *p)
{
  const char *name = p->s;
  while (isalnum((unsigned char)*p->s) || *p->s == '_') p->s++;
  return (size_t)(p->s - name);
}

/* Parses $name: a number, or, if the environment says so, an operand. */
static int parse_parameter(struct parse *p)
{
  const char *name = p->s;
  const size_t n = skip_word(p);
  int operand = -1;
  double value;
  if (!p->env->parameter || !p->env->parameter(p->env, name, n, &value, &operand))
    return fail_formula(p, name, "there is no parameter", (int)n);
  if (operand < 0) return pw_number(p->t, value);
  int reg = pw_load(p->t, operand);
  pw_uniform(p->t, reg, value);
  return reg;
}

/* Parses a variable, a constant or a call. An unknown variable is a mistake only if the result
** depends on it (check_missing): a folded choice may exclude it. */
static int parse_word(struct parse *p)
{
  const char *name = p->s;
  const size_t n = skip_word(p);
  if (n == 1 && islower((unsigned char)*name)) {
    int k = *name - 'a', reg = p->env->var[k];
    if (reg >= 0) return reg;
    if (!p->missing[k]) p->missing[k] = name;
    return pw_load(p->t, MISSING - k);
  }
  static const struct {
    const char *name;
    double value;
  } constant[] = { { "pi", 3.14159265358979323846 }, { "inf", INFINITY }, { "nan", NAN } };
  for (int i = 0; i < COUNT(constant); i++)
    if (is_word(constant[i].name, name, n)) return pw_number(p->t, constant[i].value);
  return parse_call(p, name, n);
}

static int parse_atom(struct parse *p)
{
  skip_blanks(p);
  if (take_char(p, '(')) {
    int r = parse_choice(p);
    expect_char(p, ')');
    return r;
  }
  if (take_char(p, '$')) return parse_parameter(p);
  if (isalpha((unsigned char)*p->s) || *p->s == '_') return parse_word(p);
  if (isdigit((unsigned char)*p->s) || *p->s == '.') {
    char *end;
    double v = number_read(p->s, &end);
    if (end != p->s) {
      p->s = end;
      return pw_number(p->t, v);
    }
  }
  return *p->s ? fail_formula(p, p->s, "this is no operand:", 1)
               : fail_formula(p, p->s, "an operand is missing", 0);
}

/* -- operators --------------------------------------------------------------------------------- */

static int parse_unary(struct parse *p)
{
  if (p->code) return 0;
  if (++p->depth > DEEPEST) return fail_formula(p, p->s, "too deep", 0);
  int r;
  skip_blanks(p);
  if (take_char(p, '-'))
    r = make_unary(p, PW_NEG, parse_unary(p));
  else if (take_char(p, '+'))
    r = parse_unary(p);
  else if (*p->s == '!' && p->s[1] != '=')
    p->s++, r = make_unary(p, PW_NOT, parse_unary(p));
  else
    r = parse_atom(p);
  p->depth--;
  return r;
}

/* Operators between two operands, the longer spellings first. */
static const struct {
  const char *text;
  int op;
  int precedence;
  bool swap;                                          /* of the operands: there is no PW_LT */
} infix[] = {
  { "||", PW_OR, 1, false },
  { "&&", PW_AND, 2, false },
  { "==", PW_EQ, 3, false },
  { "!=", PW_NE, 3, false },
  { "<=", PW_GE, 4, true },
  { ">=", PW_GE, 4, false },
  { "<", PW_GT, 4, true },
  { ">", PW_GT, 4, false },
  { "+", PW_ADD, 5, false },
  { "-", PW_SUB, 5, false },
  { "*", PW_MUL, 6, false },
  { "/", PW_DIV, 6, false },
};

/* Returns the index in `infix` of the operator at s; COUNT(infix): there is none. */
static int find_infix(const char *s)
{
  int i = 0;
  for (; i < COUNT(infix); i++) {
    const char *text = infix[i].text;
    if (s[0] == text[0] && (!text[1] || s[1] == text[1])) break;
  }
  return i;
}

/* Parses operands joined by operators of a precedence above `above`. */
static int parse_binary(struct parse *p, int above)
{
  int left = parse_unary(p);
  for (;;) {
    skip_blanks(p);
    const int i = find_infix(p->s);
    if (p->code || i == COUNT(infix) || infix[i].precedence <= above) return left;
    p->s += strlen(infix[i].text);
    int right = parse_binary(p, infix[i].precedence);
    left = infix[i].swap ? make_binary(p, infix[i].op, right, left)
                         : make_binary(p, infix[i].op, left, right);
  }
}

static int parse_choice(struct parse *p)
{
  if (++p->depth > DEEPEST) return fail_formula(p, p->s, "too deep", 0);
  int r = parse_binary(p, 0);
  if (take_char(p, '?')) {
    int yes = parse_choice(p);
    expect_char(p, ':');
    int no = parse_choice(p);
    r = p->code ? 0 : pw_term_op(p->t, PW_WHERE, r, yes, no);
  }
  p->depth--;
  return r;
}

/* -- assignments ------------------------------------------------------------------------------- */

/* Returns whether an assignment comes next. */
static bool begins_assignment(struct parse *p)
{
  skip_blanks(p);
  const char *s = p->s;
  if (!islower((unsigned char)*s)) return false;
  s++;
  while (isspace((unsigned char)*s)) s++;
  return *s == '=' && s[1] != '=';
}

/* Fails if the result depends on an unknown variable. */
static void check_missing(struct parse *p, int reg)
{
  struct pw_program *t = p->t;
  for (int i = 0; i < t->n; i++) t->term[i].live = i == reg;
  for (int i = reg; i >= 0 && !p->code; i--) {
    const struct pw_term *x = &t->term[i];
    if (!x->live) continue;
    for (int k = 0; k < 3 && x->arg[k] >= 0; k++) t->term[x->arg[k]].live = true;
    if (x->op == PW_LOAD && x->operand <= MISSING)
      fail_formula(p, p->missing[MISSING - x->operand], "there is no variable", 1);
  }
}

int pw_formula(struct pw_program *t, const char *text, struct pw_env *env, int *reg)
{
  struct parse p = { .t = t, .env = env, .text = text, .s = text };
  while (!p.code && begins_assignment(&p)) {
    char letter = *p.s++;
    take_char(&p, '=');
    int r = parse_choice(&p);
    expect_char(&p, ';');
    if (!p.code) env->var[letter - 'a'] = r;
  }
  int r = parse_choice(&p);
  skip_blanks(&p);
  if (*p.s && !p.code) fail_formula(&p, p.s, "the formula should end here, but goes on with", 1);
  if (!p.code && !t->error)
    for (int i = 0; i < LETTERS; i++)
      if (p.missing[i]) {
        check_missing(&p, r);
        break;
      }
  if (p.code) return p.code;
  if (t->error)
    return fail(t->error,
        t->error == TY_EMEMORY ? "out of memory: pointwise program"
                               : "pointwise program: too many operands");
  *reg = r;
  return TY_OK;
}
