/*
 * The account of each GPU: who uses its memory, as far as the recording knows. Part of the model.
 */
#ifndef VRAMTRACK_ACCOUNT_H
#define VRAMTRACK_ACCOUNT_H

#include "analysis/model.h"
#include "analysis/symbols.h"

/* Fills model->devices from sites, pools, failures and devices. Returns 0 or -ENOMEM. */
int vt_account_build(struct vt_model *model);

/* Tells the tensors of each device apart by what they are to the program. symbols: as for vt_category_of(). */
void vt_account_add_parts(struct vt_model *model, struct vt_symbols *symbols);

#endif
