/* ctc.c - CTCLoss (kernels/ctc.cu). */
#include "cuda/row.h"

/* Same as in kernels/ctc.cu. */
struct ctc_args { int64_t steps, samples, classes, labels, first; };
static struct ctc_args make_args(const struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return (struct ctc_args){ d->dim[0], d->dim[1], d->dim[2], c->in[1].d.dim[1],
    cuda_word(c, "blank_label", "first") };
}

static size_t logs_bytes(const struct call *c)
{
  return align_up(sizeof(double) * (size_t)desc_count(&c->in[0].d), ALIGN);
}
static size_t ctc_scratch(const struct call *c)
{
  struct ctc_args s = make_args(c);
  size_t work = (size_t)(s.samples * (s.steps + 3) * (2 * s.labels + 1));
  return logs_bytes(c) + sizeof(double) * work;
}

static int ctc_forward(struct call *c)
{
  struct ctc_args s = make_args(c);
  bool lengths = cuda_flag(c, "use_data_lengths"), counts = cuda_flag(c, "use_label_lengths");
  const struct operand *length = lengths ? &c->in[2] : NULL;
  const struct operand *count = counts ? &c->in[c->nin - 1] : NULL;
  void *length_p = length ? length->p : NULL, *count_p = count ? count->p : NULL;
  void *logs = c->tmp, *work = (char *)c->tmp + logs_bytes(c);
  int64_t rows = s.steps * s.samples;
  TRY(cuda_start(c, FAMILY_ctc, "log_rows", "T=$i0 LABEL=float STEPS=float COUNT=float TEAM=256",
      rows * CUDA_BLOCK, (void *[]){ &logs, &c->in[0].p, &rows, &s.classes }));
  struct cuda_fault *fault = cuda_device(c->device)->fault;
  const int64_t op = cuda_origin(c);
  const char *what = counts ? ""
      : s.first                               ? ", of which 0 ends a label"
                                              : ", or -1, which ends a label";
  return cuda_start_words(c, FAMILY_ctc, "paths", s.samples * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &c->out[1].p, &logs, &work, &c->in[1].p, &length_p, &count_p,
        &fault, (void *)&op, &what, &s },
      "T=$i0 LABEL=$i1 STEPS=%s COUNT=%s TEAM=256", cuda_type(length ? length->d.dtype : TY_F32),
      cuda_type(count ? count->d.dtype : TY_F32));
}

/* Sizes of the gradient. in: head gradient, the gradient that ctc_forward wrote. */
struct scale_args { int64_t n, samples, classes; };
static int64_t scale_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[1].d;
  *(struct scale_args *)s = (struct scale_args){ desc_count(d), d->dim[1], d->dim[2] };
  return desc_count(d);
}

static const char *refuse_ctc(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) ? NULL : "data is not of a float dtype";
}
static const struct kernel losses[] = {
  { "paths", ctc_forward, T_FLOAT | T_INT, refuse_ctc, ctc_scratch }, { 0 }
};
static const struct kernel losses_back[] = {
  { "rows", CUDA_ROW(FAMILY_ctc, "scale_rows", "T=$i1 LABEL=float STEPS=float COUNT=float TEAM=256",
    "o0 i1 i0 s0 s1 s2", scale_sizes, ~1u), .types = T_FLOAT | T_INT }, { 0 }
};

const struct op_kernels cuda_ctc[] = { { "CTCLoss", losses, losses_back }, { 0 } };
