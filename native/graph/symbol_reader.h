/* symbol_reader.h - a symbol file that is being read (symbol_read.c, symbol_node.c), and how old
** ones are upgraded to the present form (symbol_upgrade.c). The text, which was checked, serves as
** the list of nodes: each is read in place. */
#pragma once
#include "graph/graph.h"
#include "base/json.h"

struct input { int node, out, version; };
/* A node as the file has it, in the caller's arena. */
struct parsed_node {
  const struct op *op;                                /* NULL: there is none of its name */
  const char *op_name, *name;                         /* op_name NULL: a variable */
  ty_attr *attr;                                      /* with room for `cap` */
  struct input *in;
  const char *bodies;                                 /* its subgraphs in the text; NULL: none */
  int nattr, cap, nin;
  bool has_ports;
  struct ports ports;                                 /* symbol_upgrade.c */
};
/* A node's place in the text. */
struct node_record {
  const char *at;
  union {
    const char *next;                                 /* open: its input that is read next */
    int64_t changes;                                  /* built: how often operators changed it */
  };
  int index;                                          /* built: its number in the graph */
  int outputs;                                        /* how many are read, once they are counted */
};
/* An attribute that an operator of an old file gives to a variable, which may come before it. */
struct inherited_attr {
  const char *key, *value;
  int to, from, order;
  bool if_absent;
};
struct file {
  const char *text, *heads;
  ty_graph *g;
  struct node_record *node;
  int n, version;
  bool counted;                                       /* outputs are */
  bool own_versions;                                  /* they are not those that are counted */
  struct arena arena;                                 /* of inherited attributes */
  struct inherited_attr *inherited;
  int ninherited, inherited_cap;
  size_t taken, *left;                                /* of the graph; what is left for all */
};

/* fields of a node */
enum { OP, NAME, INPUTS, ATTRS, ATTR, PARAM, BODIES, CONTROL, SOURCE, FIELDS };

/* -- symbol_node.c ----------------------------------------------------------------------------- */

/* Fails at a byte of the text. Returns the code. */
int  file_fail(const struct file *f, const char *at, const char *what, const char *got);
int  file_fail_memory(void);
/* Returns "a text", "a number", "a list", "an object". */
const char *file_type_name(const char *v);
/* Finds the values of an object's fields, NULL where one is not given; of several the first counts.
** The first `required` of the names must be given. */
int  file_read_fields(const struct file *f, const char *object, const char *const *names, int n,
    int required, const char **out);
/* Reads a number of 0 or more. what: its description in an error. */
int  file_read_number(const struct file *f, const char *v, const char *what, int *out);
/* Reads [node, output] or [node, output, version]. */
int  file_read_entry(const struct file *f, const char *v, struct input *out);
int  file_count_items(const char *list);
/* Finds the values of a node's fields; v: FIELDS of them. */
int  file_node_fields(const struct file *f, int node, const char **v);
bool file_is_variable(const struct file *f, int node);
/* Reads a node into the arena. */
int  file_parse_node(const struct file *f, int node, struct arena *a, struct parsed_node *out);
/* Returns an attribute's value, NULL: it has none of that name. */
const char *parsed_attr(const struct parsed_node *d, const char *key);
int  parsed_add_attr(struct parsed_node *d, struct arena *a, const char *key, const char *value);

/* -- symbol_upgrade.c -------------------------------------------------------------------------- */

/* Finds the attributes that operators give to variables. */
int upgrade_begin(struct file *f);
int upgrade_attrs(const struct file *f, int node, struct parsed_node *d, struct arena *a);
/* Returns the initialiser that an operator gives to the variable of an input; NULL: none. */
const char *upgrade_initialiser(const struct parsed_node *d, int input);
