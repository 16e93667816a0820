#!/usr/bin/awk -f
# man1.awk: makes a program's man page of what it prints for --help.
#
#   PROGRAM --help | awk -f lib/man1.awk -v name=PROGRAM -v brief='what it does' -v version=1.2.3 -v date=2026-01-31

BEGIN {
    print ".TH " toupper(name) " 1 " date " \"libgosched " version "\" libgosched"
    print ".SH NAME\n" name " \\- " brief "\n.SH DESCRIPTION\n.nf"
}

{
    gsub(/\\/, "\\e")
    gsub(/~/, "\\(ti")
    gsub(/\^/, "\\(ha")
    gsub(/`/, "\\(ga")
    gsub(/'/, "\\(aq")
    gsub(/-/, "\\-")
    # An empty line is no request.
    if ($0 == "")
        print ".sp"
    else
        print ($0 ~ /^[.]/ ? "\\&" : "") $0
}

END {
    print ".fi\n.SH SEE ALSO\n.BR gosched (7)"
}
