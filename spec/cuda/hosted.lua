-- What a GPU still runs on the host, over copies of its operands: spec/cuda/hosted_spec.lua.

return {
  -- the size of the output is in the contents, which the host has to see
  _contrib_boolean_mask = "forward",
  -- written for the CPU so far
  _contrib_int8_convolution = "forward",
  _contrib_int8_fully_connected = "forward",
  _contrib_integer_dot = "forward",
  _contrib_scatter_along_axis = "forward, gradient",
  _contrib_scatter_nd = "forward, gradient",
  _contrib_stochastic_round = "forward",
  _contrib_take_along_axis = "forward, gradient",
  -- decode the bytes of a file
  _cvimdecode = "forward",
  _cvimread = "forward",
}
