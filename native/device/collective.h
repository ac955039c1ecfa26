/* collective.h - what a back end adds for sums and broadcasts over its devices, those of this
** process and those of others.
**
** What a group does is started on COLLECTIVE_QUEUE, which all groups of a process share: devices
** that meet two groups in different orders would wait for each other for ever. Its tasks name
** arrays on the devices, and come behind the tasks that write these as order.h says.
*/
#pragma once
#include "device/order.h"

enum { COLLECTIVE_ID = 128 };
struct collective;                                    /* a group, as this process sees it */
/* n elements on one of this process's members, counted from 0; `from` may be `to` */
struct collective_part { const void *from; void *to; int64_t n; int member; };
struct collective_ops {
  const char *name;                                   /* "nccl" */
  const struct device_ops *queue;                     /* enter, finish */
  const struct order_ops *order;                      /* the devices' own */
  /* TY_OK, and what there is in words; TY_EDEVICE with what is missing */
  int  (*find)(char *text, size_t size);
  /* COLLECTIVE_ID bytes by which the members of a new group find each other */
  int  (*make_id)(void *id);
  /* n devices of this process, members first .. first + n - 1 of `size`; waits for the others */
  int  (*open)(const void *id, const int *device, int n, int first, int size,
      struct collective **out);
  /* On the queue's thread; for each member as many parts, alike, in the same order. What fails
  ** ends the group. */
  int  (*sum)(struct collective *c, const struct collective_part *part, int n, int dtype);
  int  (*broadcast)(struct collective *c, const struct collective_part *part, int n, int dtype,
      int root);
  /* ends what all groups have under way, and them; any thread */
  void (*abort)(void);
  void (*close)(struct collective *c);
};
void collective_register(const struct collective_ops *ops);      /* before queues are made */
const struct collective_ops *collective_ops(void);    /* NULL: no back end has any */
