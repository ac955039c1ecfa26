/* signature_test.c - texts of operators for ports, for the values that gradients read and for
** outputs in place of inputs: the meaning of valid texts, and the refusal of others.
*/
#include <string.h>
#include "check.h"
#include "op/registry.h"
#include "op/signature.h"

struct sizes { int64_t n, m; };
static const struct param params[] = {
  { "n", P_INT, offsetof(struct sizes, n), "1", "how many of the first" },
  { "m", P_INT, offsetof(struct sizes, m), "1", "how many of the second" },
  { 0 }
};
static const struct kernel kernels[] = { { .name = "none", .run = 0 }, { 0 } };

/* Returns ports as text, like "a0 a1! [b] {c}": hidden ones in brackets, secret ones in braces, !
** changed, ~ overwritten. Valid until the next call. */
static const char *print_ports(const struct port *p, int n)
{
  static char text[512];
  char *at = text;
  *text = 0;
  for (int i = 0; i < n; i++)
    at += snprintf(at, sizeof text - (size_t)(at - text), "%s%s%s%s%s%s%s%s", i ? " " : "",
        p[i].hidden ? "[" : "", p[i].secret ? "{" : "", p[i].name, p[i].mutated ? "!" : "",
        p[i].overwritten ? "~" : "", p[i].hidden ? "]" : "", p[i].secret ? "}" : "");
  return text;
}

static void test_ports(void)
{
  static const struct { const char *in, *out; int64_t n, m; int given; const char *ins, *outs;
    int real, visible; } cases[] = {
    { "", NULL, 1, 1, -1, "", "output", 1, 1 },
    { "data", "output [mean] {state}", 1, 1, -1, "data", "output [mean] {state}", 2, 1 },
    { "  data   label~ sum! ", "", 1, 1, 3, "data label~ sum!", "", 0, 0 },
    { "a*n", "o*m", 3, 2, -1, "a0 a1 a2", "o0 o1", 2, 2 },
    { "a!*n", "o", 0, 0, -1, "", "o", 1, 1 },
    { "a*", "o", 1, 1, 4, "a0 a1 a2 a3", "o", 1, 1 },
    /* counted ports beside others, by parameter and by the number of given inputs */
    { "a*n b! c*m", "x [y*n] {z*m}", 2, 1, -1, "a0 a1 b! c0", "x [y0] [y1] {z0}", 3, 1 },
    { "a*n b!", "o", 2, 1, 3, "a0 a1 b!", "o", 1, 1 },
    { "a*n b", "o", 0, 1, 1, "b", "o", 1, 1 },
    { "a*k b", "o", 5, 1, -1, "b", "o", 1, 1 },           /* no such parameter: none of them */
    { "a*n b", "o", -1, 1, -1, "b", "o", 1, 1 },
    { "a*n b", "o", 1000001, 1, -1, "b", "o", 1, 1 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct sizes s = { cases[i].n, cases[i].m };
    struct op op = { .name = "signature_test", .in = cases[i].in, .out = cases[i].out,
      .param = params, .param_size = sizeof s };
    for (int again = 0; again < 2; again++) {
      struct arena a = { 0 };
      struct ports p;
      RUN(op_ports(&op, &s, cases[i].given, &a, &p));
      CHECK(
          !strcmp(print_ports(p.in, p.nin), cases[i].ins), "%zu: %s", i, print_ports(p.in, p.nin));
      CHECK(!strcmp(print_ports(p.out, p.nout), cases[i].outs), "%zu: %s", i,
          print_ports(p.out, p.nout));
      CHECK(p.nreal == cases[i].real && p.nvisible == cases[i].visible, "%zu: %d %d", i, p.nreal,
          p.nvisible);
      arena_done(&a);
    }
  }
}

/* Checks that the given count and that of the parameter agree, and that without a kernel the
** parameter counts bodies as well. */
static void test_counts(void)
{
  struct sizes s = { 2, 0 };
  struct op op = { .name = "signature_test", .in = "a*n", .out = "o", .param = params,
    .param_size = sizeof s, .cpu = kernels };
  struct arena a = { 0 };
  struct ports p;
  RUN(op_ports(&op, &s, 2, &a, &p));
  RUN(op_ports(&op, &s, -1, &a, &p));
  CHECK(op_ports(&op, &s, 3, &a, &p) == TY_EVALUE, "it took three");
  CHECK(!strcmp(ty_error(),
            "signature_test: parameter n is 2, but the number of inputs is 3"), "%s", ty_error());
  op.in = "a*k";
  RUN(op_ports(&op, &s, 3, &a, &p));
  op.in = "a*n";
  op.cpu = NULL;
  RUN(op_ports(&op, &s, 3, &a, &p));
  CHECK(p.nin == 3, "%d", p.nin);
  arena_done(&a);

  char number[16];
  ty_attr given[] = { { "m", "7" }, { "n", "5" } }, more[3];
  int n = 1;
  const ty_attr *all = op_counted(&op, given, &n, 3, more, number);
  CHECK(n == 2 && !strcmp(all[1].key, "n") && !strcmp(all[1].value, "3") &&
          !strcmp(all[0].key, "m"),
      "%d", n);
  CHECK(op_counted(&op, given, (n = 2, &n), 3, more, number) == given && n == 2, "%d", n);
  CHECK(op_counted(&op, given, (n = 1, &n), -1, more, number) == given && n == 1, "%d", n);
  op.in = "a*k"; /* it has no such parameter */
  CHECK(op_counted(&op, given, &n, 3, more, number) == given && n == 1, "%d", n);
  op.in = "a*";
  CHECK(op_counted(&op, given, &n, 3, more, number) == given && n == 1, "%d", n);
  op.in = "a b";
  CHECK(op_counted(&op, given, &n, 3, more, number) == given && n == 1, "%d", n);
  CHECK(!op_variadic(&op), "%s", op_variadic(&op));
}

static void test_reads(void)
{
  static const struct { const char *text, *want; bool heads, changes; } cases[] = {
    { "g0 i1! o0", "g0 i1! o0", true, true }, { "i0", "i0", false, false },
    { "g* i* o*", "g0 g1 i0 i1 i2 o0 o1", true, false },
    { " i9  i2 g1 ", "i2 g1", true, false },              /* there is no input 9 */
    { "i*! o1", "i0! i1! i2! o1", false, true }, { "", "", false, false },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct reads *r = NULL;
    char text[256] = "", *at = text;
    RUN(find_reads(cases[i].text, &r));
    struct read_walk w = reads_walk(r, 3, 2);
    for (int k = 0; reads_next(&w); k++) {
      at += sprintf(at, "%s%c%d%s", k ? " " : "", w.kind, w.k, w.changed ? "!" : "");
      CHECK(w.operand == k, "%d", w.operand);
    }
    CHECK(!strcmp(text, cases[i].want), "%zu: %s", i, text);
    CHECK(r->heads == cases[i].heads && r->changes == cases[i].changes, "%zu", i);
  }
  const struct reads *none = (const struct reads *)kernels;
  RUN(find_reads(NULL, &none));
  struct read_walk w = reads_walk(none, 3, 2);
  CHECK(!none && !reads_next(&w), "no text reads something");
}

static void test_in_place(void)
{
  const struct in_place *p;
  struct op op = { .inplace = "0=0 1=2", .back_inplace = "*=3" };
  RUN(op_in_place(&op, false, &p));
  CHECK(in_place_allowed(p, 0, 0) && in_place_allowed(p, 1, 2), "not where it says");
  CHECK(!in_place_allowed(p, 0, 2) && !in_place_allowed(p, 1, 0) && !in_place_allowed(p, 2, 2),
      "elsewhere");
  RUN(op_in_place(&op, true, &p));
  CHECK(in_place_allowed(p, 2, 6) && !in_place_allowed(p, 2, 2), "every third");
  op.inplace = NULL;
  RUN(op_in_place(&op, false, &p));
  CHECK(!in_place_allowed(p, 0, 0), "no text");
}

static void expect_refusal(int code, const char *text)
{
  CHECK(code == TY_EINTERNAL && !strcmp(ty_error(), text), "%d: %s", code, ty_error());
}

static void test_bad_texts(void)
{
  struct op op = { .name = "signature_test" };
  const struct reads *r;
  const struct in_place *pairs;
  const struct port_list *ports;
  for (int again = 0; again < 2; again++) { /* a refused text is not kept */
    expect_refusal(
        find_reads("g0 x1", &r), "operator text 'g0 x1': expected g, i or o and a number or *");
    expect_refusal(find_reads("i", &r), "operator text 'i': expected g, i or o and a number or *");
    op.in = "[";
    expect_refusal(op_inputs(&op, NULL, &ports), "operator text '[': expected [name] or {name}");
    op.in = "data {";
    expect_refusal(op_inputs(&op, NULL, &ports), "operator text '{': expected [name] or {name}");
    op.inplace = "0=x";
    expect_refusal(op_in_place(&op, false, &pairs), "operator text '0=x': expected output=input");
    op.in = "data";
    expect_refusal(op_parse_texts(&op), "operator text '0=x': expected output=input");
    op.inplace = NULL;
    op.back_inplace = "0";
    expect_refusal(op_parse_texts(&op), "operator text '0': expected output=input");
    op.back_inplace = NULL;
    op.shown = "y0";
    expect_refusal(op_parse_texts(&op), "operator text 'y0': expected g, i or o and a number or *");
    op.shown = NULL;
    op.out = "{";
    expect_refusal(op_parse_texts(&op), "operator text '{': expected [name] or {name}");
    op.out = NULL;
    op.grad = "g";
    expect_refusal(op_parse_texts(&op), "operator text 'g': expected g, i or o and a number or *");
    op.grad = NULL;
    RUN(op_parse_texts(&op));
  }
}

int main(void)
{
  test_ports();
  test_counts();
  test_reads();
  test_in_place();
  test_bad_texts();
  return check_end();
}
