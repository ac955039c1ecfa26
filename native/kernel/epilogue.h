/* epilogue.h - what a kernel does besides its operator, to its first input before and to its first
** output after, while they are in registers: what oneDNN calls post-operations, cuDNN and cublasLt
** fused graphs. pass/epilogue.c finds them; a kernel's `fuses` says which ones it can do, and it
** looks for them in its call with the functions below.
*/
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACT_NONE, ACT_RELU, ACT_SIGMOID, ACT_TANH, ACT_SOFTRELU, ACT_GELU };

/* In the order in which a kernel does them: PRE_* to in[0], BESIDE_* to its results, POST_* to
** out[0]. `operand` is an input after those of the operator. */
enum fused_kind {
  /* in[0] is the data of the activation before the operator; of a gradient's kernel, CAN(PRE_ACT)
  ** means that it does POST_ACT_GRAD for what the forward kernel does so */
  PRE_ACT,
  /* in[0] holds the output of a loss, of which `param` are the parameters and the operand is the
  ** label; the loss's gradient takes its place (operators/loss/softmax_loss.h) */
  PRE_LOSS_GRAD,
  /* in[0] holds the gradient of elements that were picked of the operator's output, or of that of
  ** PRE_LOG_GRAD, one of each row; the operand has their indices, moved to the nearest end where
  ** they are out of range */
  PRE_PICK_GRAD,
  /* in[0] is the gradient of log_softmax along the last axis, of which `param` are the parameters
  ** and the operand is the output; the gradient of its data takes its place. Only after
  ** PRE_PICK_GRAD (operators/nn/picked_log.h) */
  PRE_LOG_GRAD,
  /* in[0] is the gradient of the result of the activation that the forward kernel did (POST_ACT) */
  PRE_ACT_GRAD,
  /* in[0] lacks a part: plus the operand, which has its shape and dtype, rounded to that */
  PRE_ADD,
  /* in[0] is the gradient of the output of a relu, which the operand holds; relu's gradient takes
  ** its place, and is an output after those of the operator, too */
  PRE_KEPT_GRAD,
  /* of log_softmax along the last axis: elements that the operand picks, one of each row, are an
  ** output after the operator's own, NULL where they are not needed. The operator's output gets
  ** probabilities, not their logarithms; its only reader has PRE_PICK_GRAD with `exponentials`
  ** (operators/nn/picked_log.h) */
  BESIDE_PICK,
  /* times scale, plus shift, of each channel */
  POST_SCALE,
  /* plus what out[0] holds */
  POST_ACCUMULATE,
  /* plus the operand, which has the output's shape and dtype */
  POST_ADD,
  POST_ACT,
  /* times the gradient of the activation that made the data of the forward part; the operand,
  ** output 0 of the forward part, decides it */
  POST_ACT_GRAD,
  /* the same of relu, sigmoid or tanh; the operand, that data, decides it. Of what the kernel's
  ** result is rounded to, with the bits of the activation's operator */
  POST_DATA_GRAD,
};
#define CAN(kind) (1u << (kind))
/* besides POST_ACT: of ACT_GELU, too, with the bits of its operator */
#define CAN_GELU (1u << 31)
/* besides POST_ADD: POST_ACT of the sum */
#define CAN_ACT_OF_SUM (1u << 30)
/* besides PRE_ACT_GRAD: of half types, too, with the bits of the activation's operator */
#define CAN_HALF_GRAD (1u << 29)
/* Returns whether what is fused makes in[0]. */
static inline bool fused_before(enum fused_kind kind) { return kind < BESIDE_PICK; }
/* Returns whether what is fused changes out[0]. */
static inline bool fused_after(enum fused_kind kind) { return kind >= POST_SCALE; }
/* Returns whether what is fused is one more output of the kernel. */
static inline bool fused_kept(enum fused_kind kind)
{
  return kind == PRE_KEPT_GRAD || kind == BESIDE_PICK;
}

/* per channel; the shift has the bias in it */
struct scaling {
  float *scale, *shift;
  uint64_t version;                                   /* changes with them */
};
struct fused_op {
  enum fused_kind kind;
  int operand;                                        /* place among the inputs, -1: none */
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
