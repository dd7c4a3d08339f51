/* JSON of compiled programs: the elements of "programs". */
#include "analysis/frameworks.h"
#include "views/json.h"

json_t *vt_json_program(const struct vt_analysis *a, uint32_t index)
{
    const struct vt_program *p = vt_reading_program(a->model.reading, index);
    json_t *object = json_object();
    char framework[VT_FRAMEWORKS_NAME];

    if (!p) { /* outside of a damaged file */
        json_decref(object);
        return json_null();
    }
    set(object, "name", vt_json_chars(vt_reading_chars(a->model.reading, p->name)));
    set(object, "framework", json_string(vt_frameworks_name(framework, p->framework < 8 ? 1u << p->framework : 0)));
    set(object, "executables", number(p->executables));
    set(object, "loaded", number(p->loaded));
    set(object, "runs", number(p->runs));
    set(object, "temporary_bytes", number(p->temporary_bytes));
    set(object, "argument_bytes", number(p->argument_bytes));
    set(object, "output_bytes", number(p->output_bytes));
    set(object, "aliased_bytes", number(p->aliased_bytes));
    set(object, "code_bytes", number(p->code_bytes));
    return object;
}
