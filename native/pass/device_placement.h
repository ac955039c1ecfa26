/* device_placement.h - devices of nodes, and copies where values cross. */
#pragma once
#include "graph/graph.h"

struct placing {
  int device;                                         /* default */
  /* ctx group -> device */
  const ty_place *place;
  int nplace;
  /* per node: device of a variable's array, -1: by group, else default */
  const int *var;
  /* the arrays decide for variables even against their group */
  bool fixed;
};
int assign_devices(const ty_graph *g, const struct placing *w, int *device);    /* per node */
/* device of a node's ctx group; -1: none */
int group_device(const struct placing *w, const struct node *n, int *device);
/* Copies g, with a _CrossDeviceCopy node on every edge between devices (one for each value and
** target). map[node] is the node's new index. new_device: per new node; freed by the caller. */
int insert_device_copies(
    ty_graph *g, const int *device, ty_graph **out, int *map, int **new_device);
