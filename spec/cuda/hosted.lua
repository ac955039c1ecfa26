-- What a GPU still runs on the host, over copies of its operands: spec/cuda/hosted_spec.lua.

return {
  -- the size of the output lies in the contents, which the host has to see
  _contrib_boolean_mask = "forward",
  -- decode the bytes of a file
  _cvimdecode = "forward",
  _cvimread = "forward",
}
