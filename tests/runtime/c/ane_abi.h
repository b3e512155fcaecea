/*
 * The Linux drivers' interface, written from docs/reference/devices.md 2, 4 and 5 for the tests, and independent of the
 * Python structures: the compiler holds every size and offset to the documented numbers.
 */
#ifndef ANE_ABI_H
#define ANE_ABI_H

#include <stddef.h>
#include <stdint.h>

#define AT(type, field, at) _Static_assert(offsetof(struct type, field) == (at), #type "." #field)
#define BYTES(type, size) _Static_assert(sizeof(struct type) == (size), #type)

struct version {
	int32_t major, minor, patch;
	uint64_t name_len, name, date_len, date, desc_len, desc;
};
BYTES(version, 64);
AT(version, patch, 8);
AT(version, name_len, 16);
AT(version, name, 24);
AT(version, date_len, 32);
AT(version, date, 40);
AT(version, desc_len, 48);
AT(version, desc, 56);

struct gem_close { uint32_t handle, pad; };
BYTES(gem_close, 8);

struct get_caps { uint32_t flags, size, abi_version, chip_family, section_size, bind_size, exec_io_size, pad; };
BYTES(get_caps, 32);
AT(get_caps, abi_version, 8);
AT(get_caps, chip_family, 12);
AT(get_caps, section_size, 16);
AT(get_caps, bind_size, 20);
AT(get_caps, exec_io_size, 24);
AT(get_caps, pad, 28);

struct bo_init { uint32_t handle, pad; uint64_t size, offset; };
BYTES(bo_init, 24);
AT(bo_init, pad, 4);
AT(bo_init, size, 8);
AT(bo_init, offset, 16);

struct bo_free { uint32_t handle, pad; };
BYTES(bo_free, 8);
AT(bo_free, pad, 4);

struct submit { uint64_t tsk_size; uint32_t td_count, td_size, handles[32], btsp_handle, pad; };
BYTES(submit, 152);
AT(submit, td_count, 8);
AT(submit, td_size, 12);
AT(submit, handles, 16);
AT(submit, btsp_handle, 144);
AT(submit, pad, 148);

struct section { uint32_t id, bo_handle; uint64_t size, offset; };
BYTES(section, 24);
AT(section, bo_handle, 4);
AT(section, size, 8);
AT(section, offset, 16);

struct generic_bind { uint32_t buffer_id, bo_handle, type, pad; uint64_t size; };
BYTES(generic_bind, 24);
AT(generic_bind, type, 8);
AT(generic_bind, pad, 12);
AT(generic_bind, size, 16);

struct prog_load { uint64_t sections_ptr, generic_ptr; uint32_t section_count, generic_count, prog_id_out, pad; };
BYTES(prog_load, 32);
AT(prog_load, generic_ptr, 8);
AT(prog_load, section_count, 16);
AT(prog_load, generic_count, 20);
AT(prog_load, prog_id_out, 24);
AT(prog_load, pad, 28);

struct proc_create { uint32_t prog_id, proc_id_out; };
BYTES(proc_create, 8);
AT(proc_create, proc_id_out, 4);

struct exec_io { uint32_t buffer_id, bo_handle, type, flags; uint64_t reserved, size; };
BYTES(exec_io, 32);
AT(exec_io, type, 8);
AT(exec_io, flags, 12);
AT(exec_io, reserved, 16);
AT(exec_io, size, 24);

struct exec { uint32_t prog_id, proc_id, priority, timeout_ms, count, pad; uint64_t io_ptr; };
BYTES(exec, 32);
AT(exec, proc_id, 4);
AT(exec, priority, 8);
AT(exec, timeout_ms, 12);
AT(exec, count, 16);
AT(exec, pad, 20);
AT(exec, io_ptr, 24);

struct prog_lookup { uint64_t digest_ptr; uint32_t digest_len, pad, found_out, prog_id_out; };
BYTES(prog_lookup, 24);
AT(prog_lookup, digest_len, 8);
AT(prog_lookup, pad, 12);
AT(prog_lookup, found_out, 16);
AT(prog_lookup, prog_id_out, 20);

/* Read-and-write request 'd', number n: two direction bits, fourteen bits of size, the letter, the number. */
#define REQUEST(n, type) (3u << 30 | (uint32_t)sizeof(struct type) << 16 | (uint32_t)'d' << 8 | (n))
enum request {
	VERSION = 0x00, GEM_CLOSE = 0x09, GET_CAPS = 0x40, BO_INIT = 0x41, BO_FREE = 0x42, SUBMIT = 0x43,
	PROG_LOAD = 0x44, PROC_CREATE = 0x45, EXEC = 0x46, PROG_LOOKUP = 0x47
};
_Static_assert(REQUEST(VERSION, version) == 0xC0406400u, "VERSION");
_Static_assert(REQUEST(GET_CAPS, get_caps) == 0xC0206440u, "GET_CAPS");
_Static_assert(REQUEST(BO_INIT, bo_init) == 0xC0186441u, "BO_INIT");
_Static_assert(REQUEST(BO_FREE, bo_free) == 0xC0086442u, "BO_FREE");
_Static_assert(REQUEST(SUBMIT, submit) == 0xC0986443u, "SUBMIT");
_Static_assert(REQUEST(PROG_LOAD, prog_load) == 0xC0206444u, "PROG_LOAD");
_Static_assert(REQUEST(PROC_CREATE, proc_create) == 0xC0086445u, "PROC_CREATE");
_Static_assert(REQUEST(EXEC, exec) == 0xC0206446u, "EXEC");
_Static_assert(REQUEST(PROG_LOOKUP, prog_lookup) == 0xC0186447u, "PROG_LOOKUP");

/* A package of either generation: the first 0x1000 bytes, the text behind them. */
struct anec {
	uint64_t content_size;
	uint32_t td_size, td_count;
	uint64_t tsk_size, krn_size;
	uint32_t src_count, dst_count, tiles[32];
	uint64_t nchw[32][6];
};
AT(anec, td_size, 0x8);
AT(anec, td_count, 0xC);
AT(anec, tsk_size, 0x10);
AT(anec, krn_size, 0x18);
AT(anec, src_count, 0x20);
AT(anec, dst_count, 0x24);
AT(anec, tiles, 0x28);
AT(anec, nchw, 0xA8);

#define PAGE 0x4000u
#define HEADER 0x1000u

#endif
