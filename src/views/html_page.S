/*
 * The page's fixed text, which scripts/page puts together from src/views/html and the libraries' files.
 * VT_PAGE_HEAD and VT_PAGE_TAIL are their paths in the build directory.
 */
    .section .rodata
    .globl vt_html_head, vt_html_head_end, vt_html_tail, vt_html_tail_end
    .hidden vt_html_head, vt_html_head_end, vt_html_tail, vt_html_tail_end
vt_html_head:
    .incbin VT_PAGE_HEAD
vt_html_head_end:
vt_html_tail:
    .incbin VT_PAGE_TAIL
vt_html_tail_end:
    .section .note.GNU-stack,"",%progbits
