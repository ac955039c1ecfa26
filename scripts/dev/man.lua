-- Writes the man page tycho.h(3): conventions of the C interface, then its functions in the
-- header's order, with their comments.
--
--   build/tycho scripts/dev/man.lua > tycho.h.3     from the root of a checkout

local HEAD = [[
.Dd November 27, 2026
.Dt TYCHO.H 3
.Os
.Sh NAME
.Nm tycho.h
.Nd interface of the deep-learning engine Tycho in C
.Sh LIBRARY
.Li libtycho , -ltycho
.Pp
.Dl cc program.c $(pkg-config --cflags --libs tycho)
.Sh SYNOPSIS
.In tycho.h
.Sh DESCRIPTION
A program in C loads a network that was trained in Lua, binds it to arrays and runs it, without Lua.
The usual order of calls is
.Fn ty_graph_load ,
.Fn ty_graph_heads ,
.Fn ty_exec_simple_bind ,
.Fn ty_params_load ,
.Fn ty_exec_arg
and
.Fn ty_tensor_write
for the inputs,
.Fn ty_exec_forward ,
.Fn ty_exec_output
and
.Fn ty_tensor_read
for the results.
.Pp
Functions whose names end in
.Li _new , _load , _open , _bind
or
.Li _parse
give a handle that
.Li _free
takes back.
Other pointers that they give are borrowed.
Sizes are bytes, dimensions are elements.
Nodes, outputs, axes and devices count from 0.
.Pp
One thread at a time uses an object.
A run is queued: what fails in it is returned by the call that reads its result.
.Pp
The functions, with the comments of the header:
.Bl -tag -width Ds
]]

local TAIL = [[
.El
.Sh RETURN VALUES
A function that can fail returns
.Dv TY_OK
(0) or the code of an error, above 0.
.Fn ty_error
is its text,
.Fn ty_error_detail
its parts, both of the calling thread until its next failure.
A code below 0 is an event of a run that waits for its caller:
.Fn ty_exec_resume
goes on.
.Sh ENVIRONMENT
.Ev TYCHO_THREADS
says how many cores a run takes.
.Sh SEE ALSO
.Xr tycho 1
]]

-- Returns a text of a comment or a declaration escaped for roff.
local function escaped(text)
  return (text:gsub("\\", "\\e"):gsub("%s+", " "):gsub("^%s+", ""):gsub("%s+$", "")
    :gsub("^([.'])", "\\&%1"))
end

-- Returns declarations with the comment above or next to them: list of {text, comment}.
local function declarations(header)
  local list, comment, at = {}, "", 1
  while at <= #header do
    local block, after = header:match("^%s*/%*(.-)%*/()", at)
    local text, stop = header:match("^%s*([%w_][^;{]*%b());()", at)
    if block then
      comment, at = block:gsub("\n%*%*", "\n"), after
    elseif text then
      local beside, past = header:match("^[ \t]*/%*([^\n]-)%*/()", stop)
      list[#list + 1] = { text = text, comment = beside or comment }
      comment, at = "", past or stop
    else
      comment = ""                                       -- a type, a directive, the end of a line
      local braces = header:match("^%s*[%w_][^;{}()]*%b{}[^;]*;()", at)
      at = braces or header:match("^[^\n]*\n?()", at)
    end
  end
  return list
end

local file = assert(io.open("native/tycho.h"))
local list = declarations(file:read("*a"))
file:close()
io.write(HEAD)
for _, d in ipairs(list) do
  io.write('.It Li "', escaped(d.text):gsub('"', '\\(dq'), '"\n')
  local comment = escaped(d.comment)
  io.write(comment ~= "" and comment:gsub("([.!?]) (%u)", "%1\n%2") .. "\n" or "")
end
io.write(TAIL)
