/* signature.h - the texts of an operator (op.h) as lists: its ports, what its gradient operator
** reads, which outputs may share the bytes of which inputs. Each distinct text is parsed once,
** those of registered operators when the registry is filled; a list lives as long as the
** process. */
#pragma once
#include "op/op.h"

enum { READ_HEAD = 'g', READ_IN = 'i', READ_OUT = 'o' };
/* head gradient, input or output k, or all of them; changed: backward changes it in place */
struct read { char kind; bool all, changed; int k; };
/* heads, changes: of any of them */
struct reads { int n; bool heads, changes; const struct read *read; };

/* A port as written. */
struct port_text {
  const char *name;
  /* Of "name*count": the parameter that says how many there are; "": as many as are given. */
  const char *count;
  bool mutated, overwritten, hidden, secret;
};
struct port_list {
  int n;
  int counted;                                        /* the last one with a count; -1: none */
  bool changes;                                       /* one of them is mutated */
  const struct port_text *port;
  const struct port *fixed;                           /* the ports, where none has a count */
  /* where one port alone is written, with a count: 2^k ports, made when they are needed */
  const struct port **numbered;
};

/* Output `out` may take the memory of input `in`; every > 0: output k that of input k every. */
struct shared_pair { int out, in; };
struct in_place { int every, n; const struct shared_pair *pair; };

/* Gives what a text of grad reads; NULL: nothing. */
int find_reads(const char *text, const struct reads **out);
/* Gives what the gradient operator reads, also that of formulas; NULL: there is no gradient. */
int op_reads(const struct op *op, const void *param, const struct reads **out);
/* Gives the inputs; with param NULL, those of the text that does not depend on parameters. */
int op_inputs(const struct op *op, const void *param, const struct port_list **out);
/* Gives what the operator, or its gradient operator, computes in place; NULL: nothing. */
int op_in_place(const struct op *op, bool backward, const struct in_place **out);
bool in_place_allowed(const struct in_place *pairs, int out, int in);
/* Parses those texts of an operator that do not depend on parameters. */
int op_parse_texts(const struct op *op);

/* The operands of a gradient operator in order, for a node of nin inputs and nout outputs:
** struct read_walk w = reads_walk(r, nin, nout); while (reads_next(&w)) ... w.kind, w.k ... */
struct read_walk {
  const struct reads *reads;
  int nin, nout, i, next;
  int operand;                                        /* place among all operands */
  int k;                                              /* which head gradient, input or output */
  char kind;                                          /* READ_* */
  bool changed;
};
struct read_walk reads_walk(const struct reads *r, int nin, int nout);
bool reads_next(struct read_walk *w);
