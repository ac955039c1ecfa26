/* attributes.c - texts of operators' parameters (op/param.c): two bytes choose the operator, then
** come lines of a byte that chooses the parameter, and its value. Ports and inference follow.
*/
#include "fuzz.h"
#include "op/op.h"
#include "tycho.h"

enum { MOST = 8, INPUTS = 4 };

static void infer(const struct op *op, const void *param, const struct ports *p)
{
  ty_desc d[INPUTS + 64] = { 0 };
  if (p->nin > INPUTS || p->nout > 64) return;
  struct infer s = { op, param, p->nin, p->nout, d, d + INPUTS };
  for (int i = 0; i < INPUTS + 64; i++) d[i].dtype = TY_NODTYPE;
  for (int i = 0; i < p->nin; i++)
    d[i] = (ty_desc){ .dtype = TY_F32, .ndim = 3, .dim = { 2, 3, 4 } };
  if (!op_infer(&s, INFER_SHAPES)) op_infer(&s, INFER_TYPES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 2) return 0;
  const struct op *op = op_at((data[0] | data[1] << 8) % op_count());
  char *text = fuzz_text(data + 2, size - 2), *at = text;
  ty_attr attr[MOST];
  int n = 0, known = 0;
  while (op->param && op->param[known].name) known++;
  for (char *line; known && n < MOST && (line = strsep(&at, "\n"));)
    if (*line) attr[n++] = (ty_attr){ op->param[(unsigned char)*line % known].name, line + 1 };
  struct arena a = { 0 };
  struct ports p;
  fuzz_begin();
  void *param = arena_new(&a, op->param_size + 16);
  MUST(param);
  if (!op_parse(op, attr, n, param) && !op_ports(op, param, INPUTS, &a, &p)) infer(op, param, &p);
  arena_done(&a);
  free(text);
  return fuzz_end(size);
}
