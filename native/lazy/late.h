/* late.h - recorded values that are given after their readers are recorded. */
#pragma once
#include "lazy/backlog.h"

/* Drops the calls of a backlog that wait: reads of what they would make fail. */
void late_abandon(struct backlog *backlog);
