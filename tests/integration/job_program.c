/*
 * A rank of a job: holds weights on its GPU, and does what argv says on top of that. Every word is an act:
 *   weights:MIB   grads:MIB   snapshots:MIB   kept:MIB   allocated at a place of that name, and held
 *   temp:MIB                  allocated and freed
 *   stray:MIB                 on GPU 0, whatever the rank's own GPU is
 *   device:N                  from here on GPU N (the first is LOCAL_RANK's)
 *   full                      asks for more than there is, until it is refused
 *   kill                      ends itself by SIGKILL
 *   free                      frees all that it holds
 *   ready:FILE                waits for a process to write into the pipe FILE, so that all ranks run at once
 *   fork:MIB                  a helper process that uses the GPU as well, and ends
 *   share:FILE                48 MiB that another rank may open: the handle goes into the pipe FILE
 *   open:FILE                 opens what the other rank shares
 *   peer:N                    32 MiB of its own GPU, mapped for GPU N as well
 *   exit:N                    ends with that status
 * An act that begins with "N=" is that of rank N alone, "!N=" that of all others.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static void *held[256];
static int count;

static void must(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "job_program: %s\n", what);
    _exit(90);
}

static void *take(long mib)
{
    void *p = NULL;

    must(cudaMalloc(&p, (size_t)mib << 20), "cudaMalloc");
    return p;
}

NOINLINE static void make_weights(long mib)
{
    held[count++] = take(mib);
}

NOINLINE static void make_grads(long mib)
{
    held[count++] = take(mib);
}

NOINLINE static void keep_snapshots(long mib)
{
    held[count++] = take(mib);
}

NOINLINE static void keep_results(long mib)
{
    held[count++] = take(mib);
}

NOINLINE static void use_temporary(long mib)
{
    cudaFree(take(mib));
}

NOINLINE static void touch_other(long mib)
{
    int device;

    cudaGetDevice(&device);
    cudaSetDevice(0);
    held[count++] = take(mib);
    cudaSetDevice(device);
}

NOINLINE static void ask_too_much(void)
{
    void *p = NULL;

    if (cudaMalloc(&p, (size_t)1 << 40) != cudaErrorMemoryAllocation)
        must(1, "got more than there is");
}

static void wait_for(const char *path)
{
    char byte;
    int fd = open(path, O_RDONLY);

    must(fd < 0 || read(fd, &byte, 1) != 1, "nobody said go");
    close(fd);
}

static int open_pipe(const char *path, int how)
{
    int fd = open(path, how);

    must(fd < 0, path);
    return fd;
}

/* Waits until it has been opened, as the owner of a shared tensor does. */
NOINLINE static void share_tensor(const char *path)
{
    cudaIpcMemHandle_t handle;
    char done[256], byte;
    int fd;

    held[count++] = take(48);
    must(cudaIpcGetMemHandle(&handle, held[count - 1]), "cudaIpcGetMemHandle");
    fd = open_pipe(path, O_WRONLY);
    must(write(fd, &handle, sizeof handle) != sizeof handle, "the handle was not sent");
    close(fd);
    snprintf(done, sizeof done, "%s.done", path);
    fd = open_pipe(done, O_RDONLY);
    must(read(fd, &byte, 1) != 1, "nobody opened it");
    close(fd);
}

NOINLINE static void open_tensor(const char *path)
{
    cudaIpcMemHandle_t handle;
    char done[256];
    void *p;
    int fd = open_pipe(path, O_RDONLY);

    must(read(fd, &handle, sizeof handle) != sizeof handle, "no handle came");
    close(fd);
    must(cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    snprintf(done, sizeof done, "%s.done", path);
    fd = open_pipe(done, O_WRONLY);
    must(write(fd, "d", 1) != 1, "nobody waits");
    close(fd);
}

/* As an allocator with expandable segments does for a GPU that reads another one's memory. */
NOINLINE static void map_for_peer(int other)
{
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemAccessDesc access[2] = {
        {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location.type = CU_MEM_LOCATION_TYPE_DEVICE, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    int own;

    cudaGetDevice(&own);
    must(cudaFree(NULL), "no context");
    what.location.id = access[0].location.id = own;
    access[1].location.id = other;
    must(cuMemCreate(&handle, 32 << 20, &what, 0), "cuMemCreate");
    must(cuMemAddressReserve(&p, 32 << 20, 0, 0, 0), "cuMemAddressReserve");
    must(cuMemMap(p, 32 << 20, 0, handle, 0), "cuMemMap");
    must(cuMemSetAccess(p, 32 << 20, access, 2), "cuMemSetAccess");
}

/* As a worker that loads data: it inherits the rank, and uses the GPU a little. */
static void help_out(char *program, const char *mib)
{
    char act[32];
    int status;
    pid_t pid = fork();

    snprintf(act, sizeof act, "temp:%s", mib);
    if (!pid) {
        execl(program, program, act, (char *)NULL);
        _exit(91);
    }
    must(pid < 0 || waitpid(pid, &status, 0) != pid || status, "the helper failed");
}

static void act_on(char *program, const char *act, const char *value)
{
    long number = atol(value);

    if (!strcmp(act, "weights"))
        make_weights(number);
    else if (!strcmp(act, "grads"))
        make_grads(number);
    else if (!strcmp(act, "snapshots"))
        keep_snapshots(number);
    else if (!strcmp(act, "kept"))
        keep_results(number);
    else if (!strcmp(act, "temp"))
        use_temporary(number);
    else if (!strcmp(act, "stray"))
        touch_other(number);
    else if (!strcmp(act, "device"))
        must(cudaSetDevice((int)number), "cudaSetDevice");
    else if (!strcmp(act, "full"))
        ask_too_much();
    else if (!strcmp(act, "kill"))
        raise(SIGKILL);
    else if (!strcmp(act, "ready"))
        wait_for(value);
    else if (!strcmp(act, "fork"))
        help_out(program, value);
    else if (!strcmp(act, "share"))
        share_tensor(value);
    else if (!strcmp(act, "open"))
        open_tensor(value);
    else if (!strcmp(act, "peer"))
        map_for_peer((int)number);
    else if (!strcmp(act, "exit"))
        exit((int)number);
    else if (!strcmp(act, "free"))
        while (count)
            cudaFree(held[--count]);
    else
        must(1, act);
}

/* The act behind "3=" or "!3=", or NULL if it is not this rank's. */
static char *own_act(char *act, int rank)
{
    char *sign = strchr(act, '=');
    int others = *act == '!';

    if (!sign)
        return act;
    return (atoi(act + others) == rank) != others ? sign + 1 : NULL;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK"), *local = getenv("LOCAL_RANK");
    int devices = 0;

    must(cudaGetDeviceCount(&devices) || !devices, "no device");
    must(cudaSetDevice(local ? atoi(local) % devices : 0), "cudaSetDevice");
    for (int i = 1; i < argc; i++) {
        char *act = own_act(argv[i], rank ? atoi(rank) : -1), *colon = act ? strchr(act, ':') : NULL;

        if (colon)
            *colon = 0;
        if (act)
            act_on(argv[0], act, colon ? colon + 1 : "");
    }
    return 0;
}
