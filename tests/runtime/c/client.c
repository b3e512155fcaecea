/*
 * A client of the Linux drivers for the tests: takes an .anec file through either interface, knowing nothing of the
 * Python package. The five calls come as a table, so that it runs against a virtual driver in the same process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ane_abi.h"

struct calls {
	int (*open)(const char *path);
	int (*ioctl)(int fd, uint32_t request, void *argument);
	void *(*mmap)(int fd, uint64_t size, uint64_t offset);
	int (*munmap)(void *address, uint64_t size);
	int (*close)(int fd);
};

struct buffer { uint32_t handle; uint64_t size; uint8_t *map; };

/* Calls answer 0 or more, or a negative error number. */
static int make(const struct calls *c, int fd, uint64_t size, struct buffer *b)
{
	struct bo_init init = { .size = size };
	int err = c->ioctl(fd, REQUEST(BO_INIT, bo_init), &init);

	if (err)
		return err;
	b->handle = init.handle;
	b->size = size;
	b->map = c->mmap(fd, size, init.offset);
	if (!b->map) {
		struct bo_free unmade = { .handle = init.handle };

		c->ioctl(fd, REQUEST(BO_FREE, bo_free), &unmade);
		b->handle = 0;
		return -ENOMEM;
	}
	return 0;
}

static void unmake(const struct calls *c, int fd, struct buffer *b)
{
	struct bo_free gone = { .handle = b->handle };

	if (!b->handle)
		return;
	c->munmap(b->map, b->size);
	c->ioctl(fd, REQUEST(BO_FREE, bo_free), &gone);
	b->handle = 0;
}

static uint64_t up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

/* Major version of the driver, or a negative error number; -ENODEV for another device's. */
static int identify(const struct calls *c, int fd)
{
	char name[16] = { 0 };
	struct version v = { 0 };
	int err = c->ioctl(fd, REQUEST(VERSION, version), &v);

	if (err)
		return err;
	v.date = v.desc = v.date_len = v.desc_len = 0;
	v.name = (uint64_t)(uintptr_t)name;
	v.name_len = sizeof(name);
	err = c->ioctl(fd, REQUEST(VERSION, version), &v);
	if (err)
		return err;
	return v.name_len == 3 && !memcmp(name, "ane", 3) ? v.major : -ENODEV;
}

/* One call of a package of H13. Inputs and outputs stand in the bytes of whole tiles, one behind the other. */
static int run_linked(const struct calls *c, int fd, const uint8_t *file, const uint8_t *in, uint8_t *out, int times)
{
	const struct anec *a = (const void *)file;
	struct buffer chan[32] = { 0 }, first = { 0 };
	struct submit s = { .tsk_size = a->tsk_size, .td_count = a->td_count, .td_size = a->td_size };
	uint32_t word, i;
	int err = 0;

	for (i = 0; i < 32 && !err; i++)
		if (a->tiles[i])
			err = make(c, fd, (uint64_t)a->tiles[i] * PAGE, &chan[i]);
	if (!err)
		err = make(c, fd, up(a->td_size, PAGE), &first);
	if (!err) {
		memcpy(chan[0].map, file + HEADER, a->content_size);
		memcpy(first.map, file + HEADER, a->td_size);
		memcpy(&word, first.map, 4);
		word = (word & ~0xFF0000u) | 0x40u << 16;
		memcpy(first.map, &word, 4);
		for (i = 0; i < a->src_count; i++) {
			struct buffer *b = &chan[4 + a->dst_count + i];

			memcpy(b->map, in, b->size);
			in += b->size;
		}
		for (i = 0; i < 32; i++)
			s.handles[i] = chan[i].handle;
		s.btsp_handle = first.handle;
	}
	while (!err && times--)
		err = c->ioctl(fd, REQUEST(SUBMIT, submit), &s);
	for (i = 0; !err && i < a->dst_count; i++) {
		memcpy(out, chan[4 + i].map, chan[4 + i].size);
		out += chan[4 + i].size;
	}
	unmake(c, fd, &first);
	for (i = 0; i < 32; i++)
		unmake(c, fd, &chan[i]);
	return err;
}

static void put32(uint8_t *at, uint32_t v) { memcpy(at, &v, 4); }
static void put64(uint8_t *at, uint64_t v) { memcpy(at, &v, 8); }
static uint32_t get32(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return v; }

/* Tasks of a stream, and the slots that its address records name. */
static int walk(const uint8_t *stream, uint64_t size, uint64_t *slots)
{
	uint64_t at = get32(stream) & 4 ? 0x30 : 0x10;
	int tasks = 0;

	for (; at < size; tasks++) {
		uint32_t words = get32(stream + at) >> 16 & 0x7FF, i = (get32(stream + at + 28) & 3) == 3 ? 9 : 8;

		if (!words || at + words * 4 > size)
			return -EINVAL;
		while (i < words) {
			uint32_t head = get32(stream + at + 4 * i);
			uint32_t count = head >> 31 ? 1 + (uint32_t)__builtin_popcount(head >> 15 & 0xFFFF)
						    : (head >> 15 & 0x3F) + 1;

			if (!(head >> 31) && head >> 29 & 1)
				*slots |= 1ull << (head >> 23 & 0x3F);
			i += 1 + count;
		}
		at += (4 * words + 15) & 0x3FF0;
	}
	return tasks;
}

/*
 * The six sections of a package of H14 with one output: in the package outputs come first, so slot and buffer id agree.
 * `made` takes the sections one behind the other; `size` their bytes. Returns the number of buffers, or an error.
 */
int client_sections(const uint8_t *file, uint8_t *made, uint64_t size[6], uint32_t ids[32], uint64_t bytes[32])
{
	const struct anec *a = (const void *)file;
	const uint8_t *stream = file + HEADER, *konst = stream + a->content_size - a->krn_size;
	uint64_t slots = 0, n = 0, pairs = 0;
	int tasks = walk(stream, a->tsk_size, &slots);
	uint8_t *at = made;
	uint32_t i;

	if (tasks < 0)
		return tasks;
	for (i = 0; i < a->src_count; i++)
		ids[n++] = 4 + a->dst_count + i;
	for (i = 0; i < a->dst_count; i++)
		ids[n++] = 4 + i;
	for (i = 0; i < n; i++)
		bytes[i] = (uint64_t)a->tiles[ids[i]] * PAGE;
	if (a->tiles[3]) {
		ids[n] = 0x40;
		bytes[n++] = (uint64_t)a->tiles[3] * PAGE;
	}
	size[0] = 0x208 + 0x30 * n; /* 1 generic */
	memset(at, 0, size[0]);
	put32(at, 1);
	put32(at + 4, 0x10);
	put32(at + 0x204, (uint32_t)n);
	for (i = 0; i < n; i++) {
		uint8_t *entry = at + 0x208 + 0x30 * i;
		int out = ids[i] >= 4 && ids[i] < 4 + a->dst_count;

		put32(entry, 1);
		put32(entry + 4, ids[i]);
		put32(entry + 8, (uint32_t)out);
		put32(entry + 0x10, out ? 2 : 1);
		put64(entry + 0x20, bytes[i]);
		put32(entry + 0x28, 0xFFFF);
	}
	at += size[0];
	memcpy(at, konst, size[1] = a->krn_size); /* 2 kernel */
	at += size[1];
	memcpy(at, stream, size[2] = a->tsk_size); /* 3 descriptor */
	at += size[2];
	size[3] = 4 + 0x40C; /* 4 operation */
	memset(at, 0, size[3]);
	put32(at, 1);
	for (i = 0; i < 64; i++)
		if (slots >> i & 1) {
			put32(at + 4 + 0xC + 8 * pairs, i);
			put32(at + 4 + 0x10 + 8 * pairs++, i == 1 ? 2 : i == 3 ? 0x40 : i);
		}
	put32(at + 4 + 8, (uint32_t)pairs);
	at += size[3];
	static const uint32_t one[14] = { 1, 0, 0x18, 0, 0x20, 0, 1, 3, 0, 0, 1, 0, 0xFFFFFFFF, 4 };
	memcpy(at, one, size[4] = sizeof(one)); /* 5 procedure */
	at += size[4];
	size[5] = 40; /* 7 task properties */
	memset(at, 0, size[5]);
	put32(at, 1);
	put32(at + 0xC, (uint32_t)tasks);
	put64(at + 0x20, a->tsk_size);
	return (int)n;
}

static int run_sectioned(const struct calls *c, int fd, const uint8_t *file, const uint8_t *in, uint8_t *out, int times)
{
	static const uint32_t numbers[6] = { 1, 2, 3, 4, 5, 7 };
	const struct anec *a = (const void *)file;
	struct buffer part[6] = { 0 }, io[32] = { 0 };
	struct section sections[6] = { 0 };
	struct exec_io rows[32] = { 0 };
	struct generic_bind binds[32] = { 0 };
	uint64_t size[6], bytes[32];
	uint32_t ids[32];
	uint8_t *made = malloc(0x2000 + a->content_size), *at = made;
	int n = made ? client_sections(file, made, size, ids, bytes) : -ENOMEM, err = n < 0 ? n : 0, i;
	struct prog_load load = { .section_count = 6 };
	struct proc_create process = { 0 };
	struct exec run = { .priority = 2, .timeout_ms = 30000 };

	for (i = 0; i < 6 && !err; i++) {
		err = make(c, fd, up(size[i], PAGE) + PAGE, &part[i]);
		if (!err)
			memcpy(part[i].map, at, size[i]);
		at += size[i];
		sections[i] = (struct section){ .id = numbers[i], .bo_handle = part[i].handle, .size = size[i] };
	}
	for (i = 0; i < n && !err; i++) {
		int is_out = ids[i] >= 4 && ids[i] < 4 + a->dst_count;

		err = make(c, fd, bytes[i] + PAGE, &io[i]);
		binds[i] = (struct generic_bind){ ids[i], io[i].handle, (uint32_t)is_out, 0, bytes[i] };
		rows[i] = (struct exec_io){ ids[i], io[i].handle, (uint32_t)is_out, 0, 0, bytes[i] };
		if (!err && !is_out && ids[i] != 0x40) {
			memcpy(io[i].map, in, bytes[i]);
			in += bytes[i];
		}
	}
	load.sections_ptr = (uint64_t)(uintptr_t)sections;
	load.generic_ptr = (uint64_t)(uintptr_t)binds;
	load.generic_count = (uint32_t)n;
	if (!err)
		err = c->ioctl(fd, REQUEST(PROG_LOAD, prog_load), &load);
	process.prog_id = load.prog_id_out;
	if (!err)
		err = c->ioctl(fd, REQUEST(PROC_CREATE, proc_create), &process);
	run.prog_id = load.prog_id_out;
	run.proc_id = process.proc_id_out;
	run.count = (uint32_t)n;
	run.io_ptr = (uint64_t)(uintptr_t)rows;
	while (!err && times--)
		err = c->ioctl(fd, REQUEST(EXEC, exec), &run);
	for (i = 0; i < n && !err; i++)
		if (rows[i].type == 1) {
			memcpy(out, io[i].map, bytes[i]);
			out += bytes[i];
		}
	for (i = 0; i < 6; i++)
		unmake(c, fd, &part[i]);
	for (i = 0; i < n; i++)
		unmake(c, fd, &io[i]);
	free(made);
	return err;
}

/* Take a package through the driver behind `path`; 0, or a negative error number. */
int client_run(const struct calls *c, const char *path, const uint8_t *file, const uint8_t *in, uint8_t *out, int times)
{
	int fd = c->open(path), err;

	if (fd < 0)
		return fd;
	err = identify(c, fd);
	if (err >= 0)
		err = err == 2 ? run_sectioned(c, fd, file, in, out, times) : run_linked(c, fd, file, in, out, times);
	c->close(fd);
	return err;
}

/* Every structure with a byte of its own in every field, for a comparison byte by byte: bytes 1, 2, 3, ... */
int client_pattern(int which, uint8_t *bytes)
{
	static const int sizes[] = {
		sizeof(struct version), sizeof(struct gem_close), sizeof(struct get_caps), sizeof(struct bo_init),
		sizeof(struct bo_free), sizeof(struct submit), sizeof(struct section), sizeof(struct generic_bind),
		sizeof(struct prog_load), sizeof(struct proc_create), sizeof(struct exec_io), sizeof(struct exec),
		sizeof(struct prog_lookup),
	};
	memset(bytes, 0, 256);
#define F(type, field, v) ((struct type *)bytes)->field = (__typeof__(((struct type *)bytes)->field))(v)
	switch (which) {
	case 0:
		F(version, major, 1); F(version, minor, 2); F(version, patch, 3); F(version, name_len, 4);
		F(version, name, 5); F(version, date_len, 6); F(version, date, 7); F(version, desc_len, 8);
		F(version, desc, 9);
		break;
	case 1: F(gem_close, handle, 1); F(gem_close, pad, 2); break;
	case 2:
		F(get_caps, flags, 1); F(get_caps, size, 2); F(get_caps, abi_version, 3); F(get_caps, chip_family, 4);
		F(get_caps, section_size, 5); F(get_caps, bind_size, 6); F(get_caps, exec_io_size, 7); F(get_caps, pad, 8);
		break;
	case 3: F(bo_init, handle, 1); F(bo_init, pad, 2); F(bo_init, size, 3); F(bo_init, offset, 4); break;
	case 4: F(bo_free, handle, 1); F(bo_free, pad, 2); break;
	case 5:
		F(submit, tsk_size, 1); F(submit, td_count, 2); F(submit, td_size, 3);
		for (int i = 0; i < 32; i++)
			F(submit, handles[i], 100 + i);
		F(submit, btsp_handle, 5); F(submit, pad, 6);
		break;
	case 6: F(section, id, 1); F(section, bo_handle, 2); F(section, size, 3); F(section, offset, 4); break;
	case 7:
		F(generic_bind, buffer_id, 1); F(generic_bind, bo_handle, 2); F(generic_bind, type, 3);
		F(generic_bind, pad, 4); F(generic_bind, size, 5);
		break;
	case 8:
		F(prog_load, sections_ptr, 1); F(prog_load, generic_ptr, 2); F(prog_load, section_count, 3);
		F(prog_load, generic_count, 4); F(prog_load, prog_id_out, 5); F(prog_load, pad, 6);
		break;
	case 9: F(proc_create, prog_id, 1); F(proc_create, proc_id_out, 2); break;
	case 10:
		F(exec_io, buffer_id, 1); F(exec_io, bo_handle, 2); F(exec_io, type, 3); F(exec_io, flags, 4);
		F(exec_io, reserved, 5); F(exec_io, size, 6);
		break;
	case 11:
		F(exec, prog_id, 1); F(exec, proc_id, 2); F(exec, priority, 3); F(exec, timeout_ms, 4); F(exec, count, 5);
		F(exec, pad, 6); F(exec, io_ptr, 7);
		break;
	case 12:
		F(prog_lookup, digest_ptr, 1); F(prog_lookup, digest_len, 2); F(prog_lookup, pad, 3);
		F(prog_lookup, found_out, 4); F(prog_lookup, prog_id_out, 5);
		break;
	default: return -1;
	}
	return sizes[which];
}
