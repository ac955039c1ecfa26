/* epilogue.h - operations fused with a kernel: applied to its first input before its own work, or
** to its first output after it, while elements are in registers (post-ops in oneDNN, epilogues in
** cublasLt). pass/epilogue.c finds them; kernel.fuses says which ones a kernel supports; kernels
** find them in their call with the functions below. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACT_NONE, ACT_RELU, ACT_SIGMOID, ACT_TANH, ACT_SOFTRELU, ACT_GELU };

/* Kinds, in the order in which a kernel applies them: PRE_* to in[0], BESIDE_* to its results,
** POST_* to out[0]. "The operand" is fused_op.operand, an input after those of the operator. */
enum fused_kind {
  /* in[0] is the input of an activation whose result is the operator's input. For the gradient's
  ** kernel CAN(PRE_ACT) means that it can do the matching POST_ACT_GRAD */
  PRE_ACT,
  /* in[0] is the output of a loss with parameters `param`; the operand is its label. The loss's
  ** gradient is used instead (operators/loss/softmax_loss.h) */
  PRE_LOSS_GRAD,
  /* in[0] is the gradient of elements picked from the operator's output, or from that of
  ** PRE_LOG_GRAD, one per row; the operand has their indices, which are clipped to the row */
  PRE_PICK_GRAD,
  /* in[0] is the gradient of log_softmax along the last axis, with parameters `param` and the
  ** operand as its output. The gradient of its data is used instead. Only after PRE_PICK_GRAD
  ** (operators/nn/picked_log.h) */
  PRE_LOG_GRAD,
  /* in[0] is the gradient of the result of the activation that the forward kernel did (POST_ACT) */
  PRE_ACT_GRAD,
  /* adds the operand, of the same shape and dtype, to in[0]; the sum is rounded to that dtype */
  PRE_ADD,
  /* in[0] is the gradient of the output of a relu, which is the operand. relu's gradient is used
  ** instead, and is also written to an output after those of the operator */
  PRE_KEPT_GRAD,
  /* for log_softmax along the last axis: the elements that the operand picks, one per row, are
  ** written to an output after the operator's own, unless that is NULL. The operator's output gets
  ** probabilities instead of their logarithms; its only reader has PRE_PICK_GRAD with
  ** `exponentials` (operators/nn/picked_log.h) */
  BESIDE_PICK,
  /* multiplies by a scale and adds a shift per channel */
  POST_SCALE,
  /* adds the old contents of out[0] */
  POST_ACCUMULATE,
  /* adds the operand, of the output's shape and dtype */
  POST_ADD,
  POST_ACT,
  /* multiplies by the derivative of the activation that made the forward kernel's data; the operand
  ** is output 0 of the forward kernel */
  POST_ACT_GRAD,
  /* the same for relu, sigmoid or tanh; the operand is that data. Applied to the rounded result,
  ** with the bits of the activation's operator */
  POST_DATA_GRAD,
};
#define CAN(kind) (1u << (kind))
/* Flag: POST_ACT also supports ACT_GELU, with the bits of its operator. */
#define CAN_GELU (1u << 31)
/* Flag: POST_ADD may be followed by POST_ACT. */
#define CAN_ACT_OF_SUM (1u << 30)
/* Flag: PRE_ACT_GRAD also supports half types, with the bits of the activation's operator. */
#define CAN_HALF_GRAD (1u << 29)
/* Returns whether a fused operation changes in[0]. */
static inline bool fused_before(enum fused_kind kind) { return kind < BESIDE_PICK; }
/* Returns whether a fused operation changes out[0]. */
static inline bool fused_after(enum fused_kind kind) { return kind >= POST_SCALE; }
/* Returns whether a fused operation writes a further output. */
static inline bool fused_kept(enum fused_kind kind)
{
  return kind == PRE_KEPT_GRAD || kind == BESIDE_PICK;
}

/* A scale and a shift per channel. The shift includes the bias. */
struct scaling {
  float *scale, *shift;
  uint64_t version;                                   /* changes with their values */
};
struct fused_op {
  enum fused_kind kind;
  int operand;                                        /* index of an input; -1: none */
  bool exponentials;                                  /* PRE_PICK_GRAD: after BESIDE_PICK */
  union {
    int act;                                          /* ACT_* */
    const struct scaling *scaling;
    const void *param;
  };
};
enum { MOST_FUSED = 3 };
struct epilogue { int n; struct fused_op op[MOST_FUSED]; };

/* Returns the operation of a kind in an epilogue, which may be NULL. */
static inline const struct fused_op *epilogue_find(const struct epilogue *e, enum fused_kind kind)
{
  for (int i = 0; e && i < e->n; i++)
    if (e->op[i].kind == kind) return &e->op[i];
  return NULL;
}
