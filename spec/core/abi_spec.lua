--- The layout of what programs in C pass to the library: a change of it is a new `TY_ABI`.
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local shell = require "spec.support.shell"

local SIZES = {
  ty_desc        = 144, ty_entry        = 8,  ty_attr  = 16, ty_param   = 32, ty_opinfo = 40,
  ty_bind        = 32,  ty_place        = 16, ty_want  = 168, ty_bind_spec = 80,
  ty_simple_spec = 80,  ty_reshape_spec = 40, ty_event = 48, ty_failure = 64, ty_value  = 48,
  ty_memory      = 64,  ty_sample       = 32,
}

local TAKEN = "ty_tensor_same ty_pool_trim ty_record_close ty_line ty_op_may_fail ty_watched "
  .. "ty_tensor_failed ty_profile ty_comm_note"

describe("the C interface, version 2", function()
  it("has structures of known sizes", function()
    if ffi.abi("32bit") then return pending("sizes are those of 64 bits") end
    assert.equal(2, native.C.ty_abi())
    for name, size in pairs(SIZES) do assert.equal(size, ffi.sizeof(name), name) end
  end)

  it("refuses null pointers with a code, but where nothing is to be done", function()
    local output, status = shell.run(shell.program .. " spec/support/null_arguments.lua")
    assert.equal(0, status, output)
    assert.equal(TAKEN, output:gsub("%s*%d+ calls%s*$", ""):gsub("%s+", " "))
  end)
end)
