#!/usr/bin/awk -f
# man.awk: writes the man pages of gosched.h: a page man3/FUNCTION.3 for each function, and man7/gosched.7 with all else.
#
#   awk -f lib/man.awk -v out=DIRECTORY -v version=1.2.3 -v date=2026-01-31 include/gosched.h
#
# DIRECTORY/man3 and DIRECTORY/man7 must be there. The text is that of the header's comments.

function fail(why)
{
    print "man.awk: " FILENAME ":" FNR ": " why > "/dev/stderr"
    exit failed = 1
}

# A text for man(7): what troff would take for commands or change is escaped.
function plain(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/~/, "\\(ti", text)
    gsub(/\^/, "\\(ha", text)
    gsub(/`/, "\\(ga", text)
    # A minus, not a hyphen.
    gsub(/^-/, "\\-", text)
    gsub(/ -/, " \\-", text)
    gsub(/\(-/, "(\\-", text)
    gsub(/--/, "\\-\\-", text)
    if (text ~ /^[.']/)
        text = "\\\\&" text
    gsub(/\\\\&/, "\\\\\\&", text)
    return text
}

function quoted(text)
{
    text = plain(text)
    gsub(/"/, "\\(dq", text)
    return "\"" text "\""
}

# The first sentence without its full stop; of a long sentence the beginning that has at most this length, as whatis(1)
# shows one line.
function summary(text, most,    end, i, ends)
{
    sub(/\n\n.*/, "", text)
    gsub(/\n/, " ", text)
    if (end = index(text, ". "))
        text = substr(text, 1, end)
    sub(/[.]$/, "", text)
    split(": |; | (|, ", ends, "|")
    for (i = 1; i <= 4 && length(text) > most; i++)
        if ((end = index(text, ends[i])) > 20)
            text = substr(text, 1, end - 1)
    if (length(text) > most) {
        while (length(text) > most - 4)
            sub(/ [^ ]*$/, "", text)
        text = text " ..."
    }
    return text
}

# Fills lines of at most 74 characters, before escapes.
function filled(text,    words, n, i, line, made)
{
    made = line = ""
    n = split(text, words, /[ \n]+/)
    for (i = 1; i <= n; i++) {
        if (line != "" && length(line) + length(words[i]) > 73) {
            made = made line "\n"
            line = ""
        }
        line = line (line == "" ? "" : " ") words[i]
    }
    return plain_lines(made line)
}

function plain_lines(text,    made, lines, n, i)
{
    made = ""
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++)
        made = made (i > 1 ? "\n" : "") plain(lines[i])
    return made
}

# Paragraphs; `between` is the macro that separates them. Gives what to print, without a newline at the end.
function paragraphs(text, between,    made, i, n, parts)
{
    made = ""
    n = split(text, parts, "\n\n")
    for (i = 1; i <= n; i++)
        made = made (i > 1 ? "\n" between "\n" : "") filled(parts[i])
    return made
}

# The page of a function with this comment and declaration.
function page(name, comment, declaration,    brief, file, parts, i, n, shown, returns, seen, rest, other, others)
{
    file = out "/man3/" name ".3"
    brief = plain(summary(comment, 72 - length(name)))
    functions = functions "\n.TP\n.BR " name " (3)\n" brief
    print ".TH " toupper(name) " 3 " date " " quoted("libgosched " version) " libgosched" > file
    print ".SH NAME" > file
    print name " \\- " brief > file
    print ".SH SYNOPSIS\n.nf\n.B #include <gosched.h>\n.PP" > file
    n = split(declaration, parts, "\n")
    for (i = 1; i <= n; i++)
        print ".B " quoted(parts[i]) > file
    print ".fi\n.SH DESCRIPTION" > file
    n = split(comment, parts, "\n\n")
    for (i = 1; i <= n; i++) {
        returns = i > 1 && (parts[i] ~ /^(0|1|NULL|-E[A-Z]+)[;:,. ]/ || i == n && parts[i] ~ /-E[A-Z]+[:,;.]/)
        if (returns && !shown++)
            print ".SH RETURN VALUE" > file
        else if (i > 1)
            print ".PP" > file
        print paragraphs(parts[i], ".PP") > file
    }
    print ".SH SEE ALSO" > file
    # The functions that the comment names.
    rest = comment
    while (match(rest, /gs_[a-z0-9_]+/)) {
        other = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (other != name && !((name, other) in shown_also) && rest !~ /^[.*]/)
            others[other]
        shown_also[name, other]
    }
    see[name] = ""
    for (other in others)
        see[name] = see[name] " " other
    order[++pages] = name
    close(file)
}

# What SEE ALSO lists is known when all functions are: only these have a page.
function finish_pages(    i, j, n, k, name, names, file, swap)
{
    for (i = 1; i <= pages; i++) {
        name = order[i]
        file = out "/man3/" name ".3"
        n = split(see[name], names, " ")
        for (j = 2; j <= n; j++)
            for (k = j; k > 1 && names[k] < names[k - 1]; k--) {
                swap = names[k]
                names[k] = names[k - 1]
                names[k - 1] = swap
            }
        for (j = 1; j <= n; j++)
            if (names[j] in see)
                print ".BR " names[j] " (3)," >> file
        print ".BR gosched (7)" >> file
        close(file)
    }
}

function constant(name, comment)
{
    constants = constants "\n.TP\n.B " name "\n" paragraphs(comment, ".IP")
}

# A member, or a type that is no struct.
function item(declaration, comment)
{
    gsub(/\n */, " ", declaration)
    return "\n.TP\n.B " quoted(declaration) "\n" (comment == "" ? "As above." : paragraphs(comment, ".IP"))
}

FNR == 1 {
    in_head = 1
    head = ""
    next
}

# The text at the head of the file, indented by three.
in_head {
    if ($0 ~ /Generated from/)
        in_head = 0
    else {
        sub(/^ +/, "")
        head = head (head == "" ? "" : "\n") $0
    }
    next
}

/^\/\* ---- Inline fast paths/ {
    exit
}

/^\/\* ---- / {
    sub(/^\/\* ---- /, "")
    sub(/ ---- \*\/$/, "")
    functions = functions "\n.SS " quoted($0)
    next
}

/^ *\/\*\*$/ {
    in_comment = 1
    comment = ""
    next
}

in_comment && /^ *\*\/$/ {
    in_comment = 0
    has_comment = 1
    next
}

in_comment {
    sub(/^ *\* ?/, "")
    comment = comment (comment == "" ? "" : "\n") $0
    next
}

/^typedef struct gs_[a-z_]+ \{$/ {
    in_struct = 1
    types = types "\n.TP\n.B " quoted("struct " $3) "\n" paragraphs(comment, ".IP") "\n.RS"
    has_comment = 0
    next
}

in_struct && /^\} / {
    in_struct = 0
    types = types "\n.RE"
    next
}

in_struct {
    sub(/^ +/, "")
    declaration = declaration (declaration == "" ? "" : " ") $0
    if (declaration ~ /;$/) {
        types = types item(declaration, has_comment ? comment : "")
        declaration = ""
        has_comment = 0
    }
    next
}

has_comment && /^#define / {
    constant($2, comment)
    has_comment = 0
    next
}

has_comment && /^typedef / {
    types = types item($0, comment)
    has_comment = 0
    next
}

has_comment && /^[a-zA-Z]/ {
    in_declaration = 1
}

in_declaration {
    sub(/^GS_MUST_CHECK /, "")
    declaration = declaration (declaration == "" ? "" : "\n") $0
    if ($0 ~ /;$/) {
        if (!match(declaration, /gs_[a-z0-9_]+\(/))
            fail("no function: " declaration)
        page(substr(declaration, RSTART, RLENGTH - 1), comment, declaration)
        declaration = ""
        in_declaration = has_comment = 0
    }
}

END {
    if (failed)
        exit 1
    finish_pages()
    file = out "/man7/gosched.7"
    print ".TH GOSCHED 7 " date " " quoted("libgosched " version) " libgosched" > file
    print ".SH NAME\ngosched \\- Go's scheduler as a C library" > file
    print ".SH SYNOPSIS\n.nf\n.B #include <gosched.h>\n.PP" > file
    print ".B cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs gosched)\n.fi" > file
    sub(/^\n+/, "", head)
    sub(/\n+$/, "", head)
    print ".SH DESCRIPTION\n" paragraphs(head, ".PP") > file
    print ".SH FUNCTIONS" functions > file
    print ".SH CONSTANTS" constants > file
    print ".SH TYPES" types > file
    print ".SH SEE ALSO" > file
    print ".BR gs_run (3),\n.BR gs_spawn (3),\n.BR gs_chan_make (3),\n.BR gs_select (3)" > file
    close(file)
}
