/* flush.h - submits the calls of all backlogs. */
#pragma once
#include "lazy/backlog.h"

/* Submits the calls of all threads but for those that wait for a late value (late.h), under the
** lock of backlog.h. Returns the first failure; the calls that were not submitted then stay
** pending. */
int  backlog_run(void);
