/* dlsym, AArch64; dlsym_x86_64.S says why this is not C. The caller's address is in x30 and is there again at the jump. */
	.text
	.globl	dlsym
	.type	dlsym, %function
dlsym:
	.cfi_startproc
	stp	x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov	x29, sp
	stp	x0, x1, [sp, 16]
	mov	x2, x30
	bl	vt_dlsym_answer
	cbz	x1, 1f
	ldp	x29, x30, [sp], 32
	.cfi_remember_state
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	ret
1:
	.cfi_restore_state
	bl	vt_real_dlsym_address
	mov	x16, x0
	ldp	x0, x1, [sp, 16]
	ldp	x29, x30, [sp], 32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	br	x16
	.cfi_endproc
	.size	dlsym, .-dlsym
	.section .note.GNU-stack,"",%progbits
