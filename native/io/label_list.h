/* label_list.h - the labels of images in a text file (path_imglist): lines "number TAB label TAB
** ... TAB path". Rows may have different numbers of labels.
*/
#pragma once
#include "io/reader.h"

/* its labels are value[at] to value[at + n - 1] */
struct label_row { int64_t id, at, n; };
/* rows sorted by id, those of one id as in the file */
struct label_list { struct label_row *row; float *value; int64_t n, values; int cap, cap_value; };

/* Reads a list. width: labels of each row, 0 for any number above 0. */
int  label_list_read(const char *path, int64_t width, struct label_list *out);
int  label_list_find(const struct label_list *t, int64_t id, const float **value, int64_t *n);
void label_list_free(struct label_list *t);
