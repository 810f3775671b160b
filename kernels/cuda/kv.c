// Where keys and values lie: for each of kv_layers the keys of all pages, then the values; pages of every KV
// group come from the one pool. Of latent attention there are keys alone, which are the values, too. Where layers keep
// recurrent state, or differ in what they keep, a page lies in one piece instead: kernels find keys and values of one layer
// by page ids times the pieces of a page (work.c), as if all pieces were pages. A piece is what the layers of the group
// keep, one or several places.
#include "device.h"

#include "log.h"

static bool layers_differ(const struct model_config *m) {
    for (int i = 1; i < m->num_attn; i++)
        if (m->attn[i].kv_heads != m->attn[0].kv_heads || m->attn[i].head_dim != m->attn[0].head_dim)
            return true;
    return false;
}

bool cuda_kv_whole_pages(const struct device *dev) {
    return dev->model.state_layers > 0 || layers_differ(&dev->model);
}

static size_t place_elems(const struct device *dev) {
    return (size_t)dev->block_size * (size_t)model_kv_size(&dev->model);
}

static size_t array_elems(const struct device *dev) {
    return (cuda_kv_whole_pages(dev) ? 1 : (size_t)dev->limits.num_blocks) * place_elems(dev);
}

size_t cuda_kv_array_bytes(const struct device *dev) {
    return array_elems(dev) * dtype_row_bytes(dev->kv_dtype, 1);
}

// Not fewer than n places, some times `step`, that are whole pieces of every group.
static int whole_pieces(const struct model_config *m, int n, int step) {
    n = round_up(n, step);
    for (int i = 0; i < m->num_attn; i++)
        if (n % attn_kv_places(&m->attn[i]) != 0)
            n += step, i = -1;
    return n;
}

// Places of the keys of a page.
static int key_places(const struct model_config *m) { return whole_pieces(m, m->kv_layers, 1); }

int cuda_kv_page_arrays(const struct device *dev) {
    const struct model_config *m = &dev->model;
    int arrays = attn_kv_vectors(&m->attn[0]) * key_places(m);
    if (m->state_layers == 0)
        return arrays;
    size_t bytes = (size_t)m->state_layers * (size_t)model_state_size(m) * sizeof(float);
    size_t one = place_elems(dev) * dtype_row_bytes(dev->kv_dtype, 1);
    int states = (int)((bytes + one - 1) / one);
    return whole_pieces(m, states > arrays ? states : arrays, 4); // so that states are aligned
}

int cuda_kv_page_scale(const struct device *dev, int group) {
    const struct model_config *m = &dev->model;
    if (!cuda_kv_whole_pages(dev))
        return 1;
    for (int i = 0; i < m->num_layers; i++)
        if (model_attn(m, i) && m->layers[i].kv_group == group)
            return cuda_kv_page_arrays(dev) / attn_kv_places(model_attn(m, i));
    return cuda_kv_page_arrays(dev); // of states
}

// Scales lie by the size of heads, for all places of each size.
static bool is_first_of_size(const struct model_config *m, int spec) {
    for (int i = 0; i < spec; i++)
        if (m->attn[i].head_dim == m->attn[spec].head_dim)
            return false;
    return true;
}

size_t cuda_kv_page_scales(const struct device *dev, int spec) {
    const struct model_config *m = &dev->model;
    return is_first_of_size(m, spec)
               ? (size_t)cuda_kv_page_arrays(dev) * place_elems(dev) / (size_t)m->attn[spec].head_dim
               : 0;
}

float *cuda_kv_scales(const struct device *dev, int head_dim) {
    size_t at = 0;
    for (int i = 0; dev->model.attn[i].head_dim != head_dim; i++)
        at += ((size_t)dev->limits.num_blocks * cuda_kv_page_scales(dev, i) + 3) / 4 * 4;
    return dev->scales + at;
}

size_t cuda_kv_block_bytes(struct device *dev) {
    size_t bytes = (size_t)cuda_kv_page_arrays(dev) * place_elems(dev) * dtype_row_bytes(dev->kv_dtype, 1);
    for (int i = 0; dev->kv_dtype == DTYPE_I8 && i < dev->model.num_attn; i++)
        bytes += cuda_kv_page_scales(dev, i) * sizeof(float);
    return bytes;
}

struct cuda_kv cuda_kv_of(const struct device *dev, const struct attn_spec *attn, int kv_layer) {
    size_t keys = (size_t)kv_layer * array_elems(dev), row = dtype_row_bytes(dev->kv_dtype, 1),
           values = keys + (size_t)((attn_kv_vectors(attn) - 1) * key_places(&dev->model)) * array_elems(dev);
    struct cuda_kv kv = {
        .keys = dev->keys + keys * row,
        .values = dev->keys + values * row,
        .dtype = dev->kv_dtype,
        .block_size = dev->block_size,
        .num_heads = attn->kv_heads,
        .head_dim = attn->head_dim,
    };
    if (dev->scales) {
        kv.key_scales = cuda_kv_scales(dev, attn->head_dim) + keys / (size_t)attn->head_dim;
        kv.value_scales = cuda_kv_scales(dev, attn->head_dim) + values / (size_t)attn->head_dim;
    }
    return kv;
}

// The arrays in which pages lie: all places of keys, and of values behind them, or all scales of heads of one size. `from`
// is page `page`, counted in page_bytes.
static struct cuda_page_copy page_arrays(const struct device *dev, int32_t page) {
    int arrays = cuda_kv_page_arrays(dev);
    return (struct cuda_page_copy){.pages = dev->keys,
                                   .stride = cuda_kv_array_bytes(dev),
                                   .page_bytes = place_elems(dev) * dtype_row_bytes(dev->kv_dtype, 1),
                                   .num = arrays,
                                   .from = page * (cuda_kv_whole_pages(dev) ? arrays : 1)};
}

static struct cuda_page_copy scale_arrays(const struct device *dev, int spec, int32_t page) {
    bool whole = cuda_kv_whole_pages(dev);
    size_t d = (size_t)dev->model.attn[spec].head_dim, all = cuda_kv_page_scales(dev, spec);
    return (struct cuda_page_copy){.pages = (char *)cuda_kv_scales(dev, (int)d),
                                   .stride = array_elems(dev) / d * sizeof(float),
                                   .page_bytes = (whole ? all : place_elems(dev) / d) * sizeof(float),
                                   .num = whole     ? all > 0
                                          : all > 0 ? cuda_kv_page_arrays(dev)
                                                    : 0,
                                   .from = page};
}

// Copies the pieces of page `from` to a page of the host, where they lie one behind the other, or back. Returns their end.
static char *copy_pieces(struct device *dev, const struct cuda_page_copy *a, char *host, bool to_host) {
    for (int i = 0; i < a->num; i++, host += a->page_bytes) {
        char *piece = a->pages + (size_t)i * a->stride + (size_t)a->from * a->page_bytes;
        if (to_host)
            rt_download(dev->rt, host, piece, a->page_bytes);
        else
            rt_upload(dev->rt, piece, host, a->page_bytes);
    }
    return host;
}

static void copy_page(struct device *dev, struct cuda_page_copy a, const struct cuda_page_copy *to) {
    a.to = to->from;
    if (a.num > 0)
        cuda_page_copy(dev->rt, &a);
}

// A launch per move, so that moves follow on each other, or a copy per piece.
void cuda_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves) {
    int num_scales = dev->scales ? dev->model.num_attn : 0;
    for (const struct kv_move *v = moves; v < moves + num_moves; v++) {
        bool to_host = v->to_tier == KV_HOST, apart = to_host || v->from_tier == KV_HOST;
        CHECK(backend_can_move(&dev->limits, v));
        int32_t page = to_host || !apart ? v->from : v->to; // of the device
        struct cuda_page_copy a = page_arrays(dev, page), to = page_arrays(dev, v->to);
        char *host = NULL;
        if (apart) {
            host = dev->host_pages + (size_t)(to_host ? v->to : v->from) * cuda_kv_block_bytes(dev);
            host = copy_pieces(dev, &a, host, to_host);
        } else {
            copy_page(dev, a, &to);
        }
        for (int s = 0; s < num_scales; s++) {
            a = scale_arrays(dev, s, page), to = scale_arrays(dev, s, v->to);
            if (apart)
                host = copy_pieces(dev, &a, host, to_host);
            else
                copy_page(dev, a, &to);
        }
    }
}

void *cuda_kv_host_page(struct device *dev, int32_t page) {
    CHECK(page >= 0 && page < dev->limits.num_host_pages);
    return dev->host_pages + (size_t)page * cuda_kv_block_bytes(dev);
}

// The first question marks all that is queued, steps included.
bool cuda_kv_copied(struct device *dev) {
    if (!dev->copies_marked)
        rt_mark(dev->rt, 2);
    dev->copies_marked = !rt_done(dev->rt, 2) || rt_wait(dev->rt, 2, NULL) != STATUS_OK;
    return !dev->copies_marked;
}
