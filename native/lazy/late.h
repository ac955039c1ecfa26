/* late.h - recorded values that are given after their readers are recorded. */
#pragma once
#include "lazy/backlog.h"

/* Drops the calls of a backlog that wait for a late value. Reads of what they would make fail. Call
** it under the lock of backlog.h. */
void late_abandon(struct backlog *backlog);
