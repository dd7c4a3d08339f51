/* The recording's list of stream-ordered pools. With the state lock held unless said otherwise. */
#ifndef VT_PRELOAD_CUDA_POOL_H
#define VT_PRELOAD_CUDA_POOL_H

void vt_pool_forget(void);

#endif
