/*
 * Whose code made an allocation: the application's, a library's, or a framework's with pools. The native stack decides
 * where it can: an allocator stands on it, whatever called it; Python frames say more about who asked than about who holds.
 */
#include <string.h>

#include "analysis/model.h"
#include "analysis/modules.h"

/*
 * Whose a site is when no module says it: a framework's if the innermost Python frame is in one with pools, else the
 * program's if it is called from Python through nothing but the interpreter, ctypes and CUDA. Without a native stack that
 * can't be known: a framework's allocator may stand in between.
 */
static enum vt_owner owner_by_python(const struct vt_reading *r, const struct vt_site *site)
{
    const struct vt_frame *frame = vt_reading_frame(r, site->python_stack);
    const struct vt_code *code = frame ? vt_reading_frame_code(r, frame) : NULL;

    if (code && vt_python_is_framework(vt_reading_chars(r, code->file)))
        return VT_OWNER_FRAMEWORK;
    return frame && site->stack ? VT_OWNER_APPLICATION : VT_OWNER_UNKNOWN;
}

const char *vt_model_python(const struct vt_reading *r, bool *refused)
{
    static const char name[] = "CPython ", threads[] = " (free-threaded)";
    const char *text = vt_reading_chars(r, vt_reading_header(r)->python), *rest = text + sizeof name - 1;

    *refused = false;
    if (strncmp(text, name, sizeof name - 1))
        return NULL;
    rest += strcspn(rest, " ");
    if (!strncmp(rest, threads, sizeof threads - 1))
        rest += sizeof threads - 1;
    *refused = *rest != '\0';
    return text;
}

void vt_model_set_owner(const struct vt_reading *r, struct vt_site_row *row)
{
    enum vt_module_class class_;

    row->module = vt_owner_module(r, row->record->stack);
    if (row->module == VT_NONE) {
        row->owner = owner_by_python(r, row->record);
        return;
    }
    class_ = vt_module_class_at(r, row->module);
    row->owner = class_ == VT_MODULE_FRAMEWORK ? VT_OWNER_FRAMEWORK
                 : class_ == VT_MODULE_LIBRARY ? VT_OWNER_LIBRARY
                                               : VT_OWNER_APPLICATION;
}
