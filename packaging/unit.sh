# Prints a compile unit of C files: each is read, then the macros that it made are forgotten.
#   sh packaging/unit.sh FILES
for file do
  echo "#include \"$file\""
  sed -n 's/^ *# *define  *\([A-Za-z_0-9]*\).*/#undef \1/p' "$file" | sort -u
done
