/* label_list.h - a text file of image labels (path_imglist): lines "id TAB label TAB ... TAB path".
** Rows may have different numbers of labels.
*/
#pragma once
#include "io/reader.h"

/* Its labels are value[at] .. value[at + n - 1] of the list. */
struct label_row { int64_t id, at, n; };
/* Rows are sorted by id. Rows with the same id keep the order of the file. */
struct label_list { struct label_row *row; float *value; int64_t n, values; int cap, cap_value; };

/* Reads a list into *out, which must be zero-initialised. width: labels of each row; 0: any number
** above 0. After a failure it has to be freed, too. */
int  label_list_read(const char *path, int64_t width, struct label_list *out);
/* Finds the labels of an id, borrowed. Fails if there is none. */
int  label_list_find(const struct label_list *t, int64_t id, const float **value, int64_t *n);
void label_list_free(struct label_list *t);
