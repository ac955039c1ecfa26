/* pool.h - memory shared by executors that never run at the same time: one growing range per
** device.
**
** A pool's users place their values at offsets into its ranges, so a set of executors takes the
** memory of the largest one. A range normally grows in place. If it has to move, the generation
** changes: users compare it before a run and compute their pointers again; storages made by
** pool_storage are updated by the pool. Order of calls: pool_reserve (at bind), pool_base; for each
** run: pool_last, submit after those tickets, pool_ran.
*/
#pragma once
#include "device/device.h"

/* Adds a user, to be dropped by ty_pool_free. Any thread. */
void     pool_keep(ty_pool *p);
/* Grows the range of a device to at least `bytes`; trims do not shrink it below that. Waits for
** runs if it has to move. *moved tells whether it did. */
int      pool_reserve(ty_pool *p, int device, size_t bytes, bool *moved);
/* Does as pool_reserve on behalf of `user`, until pool_forget: a trim frees what no user needs any
** more. */
int      pool_reserve_for(ty_pool *p, const void *user, int device, size_t bytes, bool *moved);
/* Drops all needs of a user. Does not wait. */
void     pool_forget(ty_pool *p, const void *user);
/* Returns the start of a device's range, 4096-byte aligned; NULL: nothing was reserved there. */
char    *pool_base(ty_pool *p, int device);
/* Returns a number that changes whenever a range moves. */
uint64_t pool_generation(ty_pool *p);
/* Notes a submitted task that uses the pool. */
void     pool_ran(ty_pool *p, struct ticket t);
/* Writes the tickets of each device's last task in the pool that has not completed; returns how
** many. */
int      pool_last(ty_pool *p, struct ticket *out, int max);
/* Makes a storage over bytes of the pool. It keeps the pool alive, and its `data` is updated by
** moves. */
int      pool_storage(ty_pool *p, int device, size_t offset, size_t bytes, struct storage **out);
