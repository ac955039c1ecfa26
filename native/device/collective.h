/* collective.h - what a back end registers for sums and broadcasts over its devices in this process
** and in others.
**
** All groups of a process share COLLECTIVE_QUEUE: if devices took part in two groups in different
** orders, they would deadlock. Its tasks use arrays on the devices, and wait for the tasks that
** write these by the marks of order.h. */
#pragma once
#include "device/order.h"

enum { COLLECTIVE_ID = 128 };                         /* bytes, as of an ncclUniqueId */
struct collective;                                    /* a group, as this process sees it */
/* n elements on one member of this process (counted from 0); `from` may be `to`. */
struct collective_part { const void *from; void *to; int64_t n; int member; };
struct collective_ops {
  const char *name;                                   /* "nccl" */
  const struct device_ops *queue;                     /* enter, finish */
  const struct order_ops *order;                      /* that of the devices */
  /* Writes a description of the library, or fails with TY_EDEVICE and what is missing. */
  int  (*find)(char *text, size_t size);
  /* Fills in the COLLECTIVE_ID bytes by which the members of a new group find each other. */
  int  (*make_id)(void *id);
  /* Opens a group of `size` members. The n devices of this process are members first .. first + n -
  ** 1. Waits for the other members. */
  int  (*open)(const void *id, const int *device, int n, int first, int size,
      struct collective **out);
  /* Sums each part over the members. Called on the queue's thread, with the same parts in the same
  ** order by every member. A failure ends the group. */
  int  (*sum)(struct collective *c, const struct collective_part *part, int n, int dtype);
  int  (*broadcast)(struct collective *c, const struct collective_part *part, int n, int dtype,
      int root);
  /* Aborts the operations of all groups, and the groups. Any thread. */
  void (*abort)(void);
  void (*close)(struct collective *c);
};
/* Registers the operations; call it before queues are made. */
void collective_register(const struct collective_ops *ops);
/* Returns the operations; NULL: no back end has any. */
const struct collective_ops *collective_ops(void);
