-- Redraws the pictures of the pages: with the code in doc/executors.md, with the scripts in
-- doc/gallery.md (which takes minutes), and samples of their training data.
--
--     pictures.draw()

local ty = require "tycho"

local pictures = {}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end


-- Returns the code of a page in one language.
local function read_code(path, language)
  local out = {}
  for block in read(path):gmatch("\n```" .. language .. "\n(.-)\n```") do
    out[#out + 1] = block
  end
  return table.concat(out, "\n")
end


local function executors()
  local text = read_code("doc/executors.md", "lua"):gsub(":save%(\"", ":save(\"doc/")
  assert(loadstring(text))()
end


local function samples()
  package.path = "scripts/lib/?.lua;" .. package.path
  local function save(name, x)
    ty.viz.image_grid(x, { columns = 10, scale = 2 }):save("doc/gallery/" .. name .. ".png")
  end
  save("digits", (require("digits").draw(20, 1)))
  save("pictures", (require("pictures").draw(20, 1)))
  save("scenes", ((require("scenes").draw(10, 2, 1)) * 60 + 128):clip(0, 255):astype("uint8"))
end


local function gallery()
  for line in read_code("doc/gallery.md", "sh"):gmatch("[^\n]+") do
    if line:find("--plot", 1, true) then
      print(line)
      assert(os.execute(line) == 0, line)
    end
  end
end


--- Draws all pictures into doc/.
function pictures.draw()
  executors()
  samples()
  gallery()
end


return pictures
