/* team.h - a team of threads that share the work of one caller.
**
** team_run never waits for a thread that has not begun: if one sleeps or its core is busy, the
** others do its work.
*/
#pragma once
#include <stdint.h>

typedef void (*team_fn)(int member, void *context);

struct team;
/* Makes a team of at most `most` members. Its threads start with the first team_run. Returns NULL
** if out of memory. */
struct team *team_new(int most);
/* Calls body(0, context) in the caller. Threads of the team that arrive before that call returns
** call it as members 1 to `members` - 1, once each. Returns after all these calls. Since no thread
** may arrive, member 0 has to go on until all work is done. helpers: how many threads there is work
** for; that many are woken if they sleep. One thread at a time may use a team. */
void team_run(struct team *t, int members, int helpers, team_fn body, void *context);
/* A barrier: subtracts one from *missing, then waits, for a short time only, until it is 0. */
void team_meet(uint32_t *missing);
/* Ends the threads and frees the team. NULL is allowed. No team_run may be in progress. */
void team_free(struct team *t);
