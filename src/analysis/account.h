/*
 * The account of each GPU: who uses its memory, as far as the recording knows. Part of the model.
 */
#ifndef VRAMTRACK_ACCOUNT_H
#define VRAMTRACK_ACCOUNT_H

#include "analysis/model.h"

/* Fills model->devices from sites, failures and devices. Returns 0 or -ENOMEM. */
int vt_account_build(struct vt_model *model);

#endif
