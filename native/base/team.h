/* team.h - threads that help another one with work that they share.
**
** A call of team_run never waits for a thread that has not begun: one that sleeps, or whose core is
** taken, costs nothing but its help.
*/
#pragma once
#include <stdint.h>

typedef void (*team_fn)(int member, void *context);

struct team;
/* Makes a team of at most `most` members, without threads: they start with the first team_run.
** Returns NULL if there is no memory for it. */
struct team *team_new(int most);
/* Calls body as member 0, and once each as members 1 to `members` - 1 in those of the team's
** threads that come before that call returns. Returns after all of these calls. The call of member
** 0 has to do what is left, all of it if no thread comes. helpers: threads that there is work for;
** sleeping ones are woken for it. One thread at a time uses a team. */
void team_run(struct team *t, int members, int helpers, team_fn body, void *context);
/* Subtracts one from *missing, then waits a moment for it to become 0. */
void team_meet(uint32_t *missing);
/* Ends the threads and frees the team. NULL is allowed. */
void team_free(struct team *t);
