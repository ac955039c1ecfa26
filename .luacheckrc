std = "luajit"
max_line_length = 100
max_string_line_length = false                           -- of lines inside long strings
unused_args = false
self = false
files["spec/**/*.lua"] = { std = "+busted" }
files[".busted"] = { ignore = { "" } }

-- tables whose rows stay whole
for _, path in ipairs{ "operators/cases*", "operators/catalogue", "ndarray/files_spec", "scripts/scripts_spec" } do
  files["spec/" .. path .. ".lua"] = { std = "+busted", max_line_length = false }
end
