/* pool.h - memory that executors share when they never run at once: one growing range per
** device.
**
** A pool's users place their values at offsets into its ranges; a set of executors costs the
** largest of them, not the sum. A range normally grows where it is. Where it must move, the
** generation changes: users compare it before a run and resolve their pointers again; storages
** made by pool_storage follow by themselves. Order of calls: pool_reserve (at bind), pool_base;
** for each run: pool_last, submit after those tickets, pool_ran.
*/
#pragma once
#include "device/device.h"

/* one more user; ty_pool_free drops it, on any thread */
void     pool_keep(ty_pool *p);
/* at least; a move waits for runs */
int      pool_reserve(ty_pool *p, int device, size_t bytes, bool *moved);
int      pool_reserve_for(ty_pool *p, const void *user, int device, size_t bytes, bool *moved);
                                                      /* for a named user: trim gives back what
                                                      ** none needs */
/* the user needs nothing any more; waits for nothing */
void     pool_forget(ty_pool *p, const void *user);
/* 4096-byte aligned; NULL: nothing was reserved there */
char    *pool_base(ty_pool *p, int device);
uint64_t pool_generation(ty_pool *p);                 /* changes with every move */
/* a task that works in the pool was submitted */
void     pool_ran(ty_pool *p, struct ticket t);
/* each device's, not past; how many */
int      pool_last(ty_pool *p, struct ticket *out, int max);
int      pool_storage(ty_pool *p, int device, size_t offset, size_t bytes, struct storage **out);
                                                      /* a place others may hold: keeps its
                                                      ** bytes, follows moves */
