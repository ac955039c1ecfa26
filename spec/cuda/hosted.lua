-- What a GPU still runs on the host, over copies of its operands: spec/cuda/hosted_spec.lua.

return {
  _contrib_MultiProposal = "forward",
  _contrib_Proposal = "forward",
  _contrib_boolean_mask = "forward, gradient",
  _contrib_calibrate_entropy = "forward",
  _cvimdecode = "forward",
  _cvimread = "forward",
}
