-- Memory of Lua that queues read stays until they are done, also when the program ends.

local shell = require "spec.support.shell"

describe("a program that ends", function()
  it("waits for copies from memory of its own", function()
    local output, status = shell.run(shell.program .. [[ -e '
      local ffi, list = require "ffi", {}
      local bytes = ffi.new("uint8_t[?]", 2^27)
      for i = 1, 4 do
        list[i] = ty.nd.from_pointer(bytes, { 2^27 }, { owner = bytes, dtype = "uint8" }):copy()
      end' 2>&1]])
    assert.equal("", output)
    assert.equal(0, status)
  end)
end)
