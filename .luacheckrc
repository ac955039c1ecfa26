std = "luajit"
max_line_length = 140
unused_args = false
self = false
files["spec/**/*.lua"] = { std = "+busted" }
files[".busted"] = { ignore = { "" } }
