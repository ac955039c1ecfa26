/* late.h - late values: recorded calls read them before their contents are given. */
#pragma once
#include "lazy/backlog.h"

/* Drops the calls of a backlog that wait for a late value. Reads of their results fail. The caller
** holds the lock of backlog.h. */
void late_abandon(struct backlog *backlog);
