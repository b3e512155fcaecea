/* Stands in for libobjc and CoreFoundation, so that the marshalling of the real border can be tried off macOS: every
   call is written down with the values that arrived, by the C compiler's own idea of the prototypes. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char log_[65536];
static char memory_[4096];
static uintptr_t error_ = 0xE0;
const void *const kIOSurfaceWidth = (const void *)0x7700;
struct { long version; void *retain; } kCFTypeArrayCallBacks = {0, 0};

#define SAY(...) snprintf(log_ + strlen(log_), sizeof log_ - strlen(log_), __VA_ARGS__)

const char *spoken(void) { return log_; }
void silence(void) { log_[0] = 0; }

void *objc_getClass(const char *name) { SAY("class %s;", name); return strcmp(name, "None") ? (void *)0xC1 : 0; }
void *sel_registerName(const char *name) {
    static char names[64][128];
    static int count;
    for (int i = 0; i < count; i++) if (!strcmp(names[i], name)) return names[i];
    strncpy(names[count], name, 127);
    return names[count++];
}
void *object_getClass(void *object) { return (char *)object + 1; }
_Bool class_respondsToSelector(void *kind, void *selector) {
    SAY("responds %p %s;", kind, (char *)selector);
    return !strcmp(selector, "UTF8String");
}

typedef void *id;
static _Bool compile(id self, char *name, uint32_t qos, id options, id *error) {
    SAY("%s %p %u %p;", name, self, qos, options);
    *error = (id)error_;
    return 0;
}
static _Bool evaluate(id self, char *name, uint32_t qos, id options, id request, id *error) {
    SAY("%s %p %u %p %p %d;", name, self, qos, options, request, *error == 0);
    return 1;
}
static id request(id self, char *name, id a, id b, id c, id d, id e, id f, id g) {
    SAY("%s %p %p %p %p %p %p %p;", name, a, b, c, d, e, f, g);
    return (id)0x123456789abc;
}
static const char *utf8(id self, char *name) { return self == (id)1 ? 0 : "h13g"; }
static long code(id self, char *name) { return -3; }

/* objc_msgSend jumps to the method with the arguments as they are; so does this, for the methods that are known. */
void *implementation(const char *name) {
    if (!strncmp(name, "compile", 7)) return compile;
    if (!strncmp(name, "evaluate", 8)) return evaluate;
    if (!strncmp(name, "request", 7)) return request;
    if (!strcmp(name, "UTF8String")) return utf8;
    return code;
}
#if defined(__x86_64__)
__asm__(".globl objc_msgSend\nobjc_msgSend:\n push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n"
        " sub $8, %rsp\n mov %rsi, %rdi\n call implementation@PLT\n add $8, %rsp\n pop %r9\n pop %r8\n pop %rcx\n"
        " pop %rdx\n pop %rsi\n pop %rdi\n jmp *%rax\n");
#elif defined(__aarch64__)
__asm__(".globl objc_msgSend\nobjc_msgSend:\n stp x0, x1, [sp, #-80]!\n stp x2, x3, [sp, #16]\n stp x4, x5, [sp, #32]\n"
        " stp x6, x7, [sp, #48]\n str x30, [sp, #64]\n mov x0, x1\n bl implementation\n mov x9, x0\n ldr x30, [sp, #64]\n"
        " ldp x6, x7, [sp, #48]\n ldp x4, x5, [sp, #32]\n ldp x2, x3, [sp, #16]\n ldp x0, x1, [sp], #80\n br x9\n");
#endif

id CFDataCreate(id allocator, const unsigned char *bytes, long size) {
    SAY("data %p %ld", allocator, size);
    for (long i = 0; i < size; i++) SAY(" %02x", bytes[i]);
    SAY(";");
    return (id)0xD1;
}
id CFArrayCreate(id allocator, const id *items, long count, const void *calls) {
    SAY("array %ld", count);
    for (long i = 0; i < count; i++) SAY(" %p", items[i]);
    SAY(" %d;", calls == &kCFTypeArrayCallBacks);
    return (id)0xA1;
}
id CFStringCreateWithBytes(id allocator, const unsigned char *bytes, long size, uint32_t encoding, _Bool external) {
    SAY("string %.*s %x %d;", (int)size, bytes, encoding, external);
    return 0;
}
void CFRelease(id object) { SAY("release %p;", object); }
int32_t IOSurfaceLock(id surface, uint32_t options, uint32_t *seed) { SAY("lock %u;", options); return (int32_t)0xe00002cc; }
id IOSurfaceGetBaseAddress(id surface) { return memory_; }
size_t IOSurfaceGetAllocSize(id surface) { return 0x123456789; }
