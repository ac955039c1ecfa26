/* cell.h - loops of recurrent cells. See vec.h. */
#pragma once
#include "kernel/vec/vec.h"

struct vec_cell {
  /* -- recurrent cells of n units for one sample; pre: sums of products -- */

  /* Computes h = tanh(pre + bias), or max(pre + bias, 0) if `relu`. */
  void   (*rnn)(void *h, const void *pre, const void *bias, bool relu, int64_t n);
  /* Computes the gradient of pre from h. */
  void   (*rnn_back)(void *dpre, const void *h, const void *dh, bool relu, int64_t n);
  /* Computes h, the cell c and the activations of the gates i f g o. gate may be pre, c may be
  ** c0. */
  void   (*lstm)(void *h, void *c, void *gate, const void *pre, const void *bias, const void *c0,
      int64_t n);
  /* Computes the gradient of pre, and replaces the gradient of c in dc by that of c0. */
  void   (*lstm_back)(void *dpre, void *dc, const void *gate, const void *c, const void *c0,
      const void *dh, int64_t n);
  /* Recomputes h from the gates and the cell. */
  void   (*lstm_out)(void *h, const void *gate, const void *c, int64_t n);
  /* Computes h, the activations of the gates r z n, and hn, the product inside gate n. */
  void   (*gru)(void *h, void *gate, void *hn, const void *x, const void *hx, const void *bx,
      const void *bh, const void *h0, int64_t n);
  /* Computes the gradients of x and hx, and replaces the gradient of h in dh by the part of the
  ** gradient of h0 that does not pass through hx. */
  void   (*gru_back)(void *dx, void *dhx, void *dh, const void *gate, const void *hn,
      const void *h0, int64_t n);
};
