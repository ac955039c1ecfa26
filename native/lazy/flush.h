/* flush.h - submits the calls of all backlogs. */
#pragma once
#include "lazy/backlog.h"

int  backlog_run(void);
