std = "luajit"
max_line_length = false                  -- scripts/dev/check.lua counts columns
unused_args = false
self = false
files["spec/**/*.lua"] = { std = "+busted" }
files[".busted"] = { ignore = { "" } }
