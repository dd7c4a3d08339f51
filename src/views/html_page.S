/*
 * The pages' fixed texts, which scripts/page puts together from src/views/html and the libraries' files. The assembler finds
 * them in a folder of the build directory (-I).
 */
    .section .rodata
.macro part name
    .globl vt_html_\name, vt_html_\name\()_end
    .hidden vt_html_\name, vt_html_\name\()_end
vt_html_\name:
    .incbin "\name"
vt_html_\name\()_end:
.endm
    part report_head
    part report_tail
    part report_rest
    part job_head
    part job_tail
    part job_rest
    part diff_head
    part diff_tail
    part diff_rest
    part d3
    .section .note.GNU-stack,"",%progbits
