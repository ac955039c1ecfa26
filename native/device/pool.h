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

/* Adds a user; ty_pool_free drops it, on any thread. */
void     pool_keep(ty_pool *p);
/* Makes the range of a device at least `bytes` large, for good. Waits for runs if it has to
** move. */
int      pool_reserve(ty_pool *p, int device, size_t bytes, bool *moved);
/* Does as pool_reserve, for a named user: a trim gives back what no user needs any more. */
int      pool_reserve_for(ty_pool *p, const void *user, int device, size_t bytes, bool *moved);
/* Drops all needs of a user, without waiting. */
void     pool_forget(ty_pool *p, const void *user);
/* Returns the start of a device's range, 4096-byte aligned; NULL: nothing was reserved there. */
char    *pool_base(ty_pool *p, int device);
/* Returns a number that changes with every move. */
uint64_t pool_generation(ty_pool *p);
/* Notes a submitted task that works in the pool. */
void     pool_ran(ty_pool *p, struct ticket t);
/* Writes each device's last task that has not completed; returns how many there are. */
int      pool_last(ty_pool *p, struct ticket *out, int max);
/* Makes a storage over bytes of the pool: it keeps them alive and follows moves. */
int      pool_storage(ty_pool *p, int device, size_t offset, size_t bytes, struct storage **out);
