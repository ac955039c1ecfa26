/* collective.h - what a back end adds for sums and broadcasts over its devices, those of this
** process and those of others.
**
** Operations of a group are started on COLLECTIVE_QUEUE, which all groups of a process share:
** devices that take part in two groups in different orders would wait for each other for ever. Its
** tasks use arrays on the devices, and run after the tasks that write these as order.h says. */
#pragma once
#include "device/order.h"

enum { COLLECTIVE_ID = 128 };
struct collective;                                    /* a group, as this process sees it */
/* n elements on member `member` of this process, from 0; `from` may be `to`. */
struct collective_part { const void *from; void *to; int64_t n; int member; };
struct collective_ops {
  const char *name;                                   /* "nccl" */
  const struct device_ops *queue;                     /* enter, finish */
  const struct order_ops *order;                      /* the devices' own */
  /* Describes the library in words, or fails with TY_EDEVICE and what is missing. */
  int  (*find)(char *text, size_t size);
  /* Makes the COLLECTIVE_ID bytes by which the members of a new group find each other. */
  int  (*make_id)(void *id);
  /* Opens a group of `size` members, of which n devices of this process are number `first` and the
  ** following ones. Waits for the other members. */
  int  (*open)(const void *id, const int *device, int n, int first, int size,
      struct collective **out);
  /* Adds each part over the members. On the queue's thread; each member has the same parts in the
  ** same order. A failure ends the group. */
  int  (*sum)(struct collective *c, const struct collective_part *part, int n, int dtype);
  int  (*broadcast)(struct collective *c, const struct collective_part *part, int n, int dtype,
      int root);
  /* Ends all groups with what they are doing; any thread. */
  void (*abort)(void);
  void (*close)(struct collective *c);
};
/* Registers the operations; call it before queues are made. */
void collective_register(const struct collective_ops *ops);
/* Returns the operations; NULL: no back end has any. */
const struct collective_ops *collective_ops(void);
